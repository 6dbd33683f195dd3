//! The time line of an age: which moment it counts from, and how it rises and falls.

use super::canvas::{Anchor, Area, Canvas, Language, Tone, same};

/// The left and right ends of the time lines.
const LEFT: i32 = 130;
const RIGHT: i32 = 836;
/// The heights of the three time lines.
const SERVER: i32 = 90;
const MEMORY: i32 = 200;
const READER: i32 = 290;
/// The moments of the proof and of the read.
const SENT: i32 = 320;
const READ: i32 = 710;

/// The second time line: 0 s, pixels for ten seconds of age and of time.
const ZERO: i32 = 566;
const AGE_SCALE: i32 = 14;
const TIME_SCALE: i32 = 29;

pub(super) fn draw(language: Language) -> Canvas {
    let mut canvas = Canvas::new(language, 604, ["The time line of an age", "年龄的时间线"]);
    one_proof(&mut canvas);
    many_proofs(&mut canvas);
    canvas
}

fn one_proof(canvas: &mut Canvas) {
    canvas.fill(Area(LEFT, SERVER - 14, SENT - LEFT, 28), Tone::Good);
    canvas.fill(Area(SENT, SERVER - 14, READ - SENT, 28), Tone::Warning);
    canvas.text(
        (LEFT, 40),
        Anchor::Start,
        Tone::Good,
        ["changes from here\nare surely in memory", "此段内的变更\n一定已在内存中"],
    );
    canvas.text(
        (SENT, 40),
        Anchor::Start,
        Tone::Warning,
        [
            "changes from here may be missing,\nif the watch has not brought them yet",
            "此段内的变更可能缺失\n（watch 尚未送达）",
        ],
    );
    let lanes = [
        (SERVER, ["API server", "API server"]),
        (MEMORY, ["memory of Skopos", "Skopos 的内存"]),
        (READER, ["reader", "读取方"]),
    ];
    for (y, name) in lanes {
        canvas.arrow(&[(LEFT, y), (RIGHT, y)], Tone::Plain);
        canvas.text((LEFT - 10, y + 5), Anchor::End, Tone::Plain, name);
    }
    canvas.arrow(&[(SENT, MEMORY), (370, SERVER)], Tone::Accent);
    canvas.text(
        (SENT - 6, MEMORY - 46),
        Anchor::End,
        Tone::Accent,
        ["1. probe is sent\n(a list of one object)", "1. 发出探测\n（列出一个对象）"],
    );
    canvas.arrow(&[(370, SERVER), (420, MEMORY)], Tone::Accent);
    canvas.text(
        (412, MEMORY - 62),
        Anchor::Start,
        Tone::Accent,
        ["2. the newest\nrevision is 1042", "2. 最新\n版本号为 1042"],
    );
    canvas.arrow(&[(550, SERVER), (600, MEMORY)], Tone::Accent);
    canvas.text(
        (592, MEMORY - 62),
        Anchor::Start,
        Tone::Accent,
        ["3. the watch brings\nrevision 1042", "3. watch 送达\n版本号 1042"],
    );
    canvas.dot((600, MEMORY), Tone::Accent);
    canvas.arrow(&[(READ, MEMORY), (READ, READER)], Tone::Accent);
    canvas.text((READ + 10, MEMORY + 40), Anchor::Start, Tone::Accent, ["4. read", "4. 读取"]);
    canvas.dashes(&[(SENT, MEMORY), (SENT, 336)], Tone::Plain);
    canvas.dashes(&[(READ, READER), (READ, 336)], Tone::Plain);
    canvas.arrow(&[(515, 326), (SENT, 326)], Tone::Plain);
    canvas.arrow(&[(515, 326), (READ, 326)], Tone::Plain);
    canvas.text(
        (515, 350),
        Anchor::Middle,
        Tone::Plain,
        ["age of the read: counted from the sending of the probe", "读取结果的年龄：从发出探测的时刻算起"],
    );
}

/// Draws the age of a quiet kind over 240 s, of which the server does not answer for 105 s.
fn many_proofs(canvas: &mut Canvas) {
    let point = |time: i32, age: i32| (LEFT + time * TIME_SCALE / 10, ZERO - age * AGE_SCALE / 10);
    let ((silent_left, _), (silent_right, _)) = (point(110, 0), point(215, 0));
    canvas.fill(Area(silent_left, 400, silent_right - silent_left, ZERO - 400), Tone::Bad);
    canvas.text(
        ((silent_left + silent_right) / 2 + 56, ZERO - 12),
        Anchor::Middle,
        Tone::Bad,
        ["the server does not answer", "服务器无应答"],
    );
    for (age, tone, label) in [
        (
            60,
            Tone::Warning,
            ["60 s (`cache.maxAge`): answers with a warning", "60 s（`cache.maxAge`）：应答带警告"],
        ),
        (90, Tone::Bad, ["90 s: stale, even if no error is known", "90 s：stale，即使没有已知错误"]),
    ] {
        canvas.dashes(&[point(0, age), point(240, age)], tone);
        let (x, y) = point(0, age);
        canvas.text((x + 8, y - 6), Anchor::Start, tone, label);
    }
    canvas.text(
        (LEFT + 8, ZERO - 46),
        Anchor::Start,
        Tone::Accent,
        ["a probe every 24 to 30 s", "每 24 至 30 s 探测一次"],
    );
    let sent = [0, 27, 55, 81, 108, 215, 240];
    let saw = sent.windows(2).flat_map(|pair| [point(pair[0], 0), point(pair[1], pair[1] - pair[0])]);
    canvas.line(&saw.collect::<Vec<_>>(), Tone::Accent);
    canvas.arrow(&[(LEFT, ZERO), (LEFT, 386)], Tone::Plain);
    canvas.arrow(&[(LEFT, ZERO), (RIGHT, ZERO)], Tone::Plain);
    canvas.text((LEFT - 10, 396), Anchor::End, Tone::Plain, ["age", "年龄"]);
    canvas.text((LEFT - 10, ZERO + 5), Anchor::End, Tone::Plain, same("0 s"));
    canvas.text((RIGHT, ZERO + 22), Anchor::End, Tone::Plain, ["time", "时间"]);
}
