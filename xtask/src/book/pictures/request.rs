//! A request's way through the gateway: to memory, or to the member.

use super::canvas::{Anchor, Area, Canvas, Label, Language, Tone, same};

/// The columns: the steps, the member, and the answers.
const STEPS: (i32, i32) = (20, 320);
const MEMBER: (i32, i32) = (412, 170);
const ANSWERS: (i32, i32) = (630, 212);

pub(super) fn draw(language: Language) -> Canvas {
    let mut canvas =
        Canvas::new(language, 704, ["A request's way through the gateway", "请求经过网关的路径"]);
    checks(&mut canvas);
    to_the_member(&mut canvas);
    to_memory(&mut canvas);
    canvas
}

/// Draws what each request goes through, and how it can be refused.
fn checks(canvas: &mut Canvas) {
    canvas.block(
        step(16, 54),
        Tone::Plain,
        ["A client of the Kubernetes API", "Kubernetes API 的客户端"],
        same("`GET /clusters/prod/api/v1/pods`"),
    );
    let steps: [(i32, Label, Label, Label, Label); 3] = [
        (
            96,
            ["Path", "路径"],
            ["cluster, kind and verb; one spelling only", "集群、资源、动词；只接受一种写法"],
            same("400"),
            ["two readings are possible", "可能有两种解读"],
        ),
        (
            176,
            ["Authentication", "认证"],
            ["client certificate, bearer token, or loopback", "客户端证书、bearer token 或本机回环地址"],
            same("401"),
            ["the caller is not known", "调用者身份未知"],
        ),
        (
            256,
            ["Authorization", "授权"],
            ["the member decides; cached for up to 10 s", "由成员集群决定；最多缓存 10 s"],
            same("403, 503"),
            ["denied; the member is down", "被拒绝；成员集群不可用"],
        ),
    ];
    for (top, title, body, code, why) in steps {
        down(canvas, top - 26, top);
        canvas.block(step(top, 54), Tone::Accent, title, body);
        right(canvas, STEPS.0 + STEPS.1, ANSWERS.0, top + 27, Tone::Bad);
        canvas.block(answer(top + 3, 48), Tone::Bad, code, why);
    }
    down(canvas, 310, 336);
}

/// Draws requests that memory does not answer.
fn to_the_member(canvas: &mut Canvas) {
    canvas.block(
        step(336, 76),
        Tone::Accent,
        ["Is the kind cached?", "该资源是否缓存？"],
        [
            "get, list, watch: yes. Not writes, Secrets,\nsubresources, aggregated APIs",
            "get、list、watch：是。写请求、Secret、\n子资源、聚合 API：否",
        ],
    );
    branch(canvas, 374, ["no", "否"]);
    canvas.block(
        Area(MEMBER.0, 340, MEMBER.1, 68),
        Tone::Plain,
        ["The member", "成员集群"],
        ["asked in the name\nof the caller", "以调用者的身份请求"],
    );
    fork(canvas, 374, &[(357, Tone::Good), (411, Tone::Bad)]);
    canvas.block(answer(334, 46), Tone::Good, ["Its answer", "成员的应答"], same("`skopos-source: member`"));
    canvas.block(answer(388, 46), Tone::Bad, same("503, 504"), ["the member is down", "成员集群不可用"]);
    down(canvas, 412, 474);
    canvas.text(
        (STEPS.0 + STEPS.1 / 2 + 10, 438),
        Anchor::Start,
        Tone::Plain,
        [
            "yes (a watch, or `resourceVersion=0`:
memory at once)",
            "是（watch 或 `resourceVersion=0`：
直接由内存应答）",
        ],
    );
}

/// Draws requests for what memory has.
fn to_memory(canvas: &mut Canvas) {
    canvas.block(
        step(474, 96),
        Tone::Accent,
        ["Is memory new enough?", "内存是否足够新？"],
        [
            "at most `cache.maxAge` (60s) old, with all\nwrites through this gateway; `no-cache`:\nas new as the member itself",
            "不超过 `cache.maxAge`（60s），且含经本网关\n的所有写入；`no-cache`：\n与成员集群一样新",
        ],
    );
    branch(canvas, 522, ["no", "否"]);
    canvas.block(
        Area(MEMBER.0, 476, MEMBER.1, 92),
        Tone::Plain,
        ["The member", "成员集群"],
        [
            "probed or read, for\n`memberDeadline` (3s)\nat most",
            "探测或读取，\n最多 `memberDeadline`\n（3s）",
        ],
    );
    fork(canvas, 522, &[(481, Tone::Good), (550, Tone::Warning), (640, Tone::Bad)]);
    canvas.block(
        answer(454, 54),
        Tone::Good,
        ["It answers: new content", "有应答：新内容"],
        ["from memory or the member", "来自内存或成员集群"],
    );
    canvas.block(
        answer(518, 64),
        Tone::Warning,
        ["It is down: old content", "不可用：旧内容"],
        same("`skopos-age: 75`\n`Warning: 299`"),
    );
    canvas.block(
        answer(592, 96),
        Tone::Bad,
        same("503, 504"),
        [
            "It is down, and the read is\n`no-cache`, or memory lacks\na write through this gateway",
            "不可用，且读请求为\n`no-cache`，或内存缺少\n经本网关的写入",
        ],
    );
    down(canvas, 570, 622);
    canvas.text((STEPS.0 + STEPS.1 / 2 + 10, 602), Anchor::Start, Tone::Plain, ["yes", "是"]);
    canvas.block(
        step(622, 66),
        Tone::Good,
        ["Answer from memory", "内存中的应答"],
        same("`skopos-source: memory`\n`skopos-age: 12`"),
    );
}

fn step(top: i32, height: i32) -> Area {
    Area(STEPS.0, top, STEPS.1, height)
}

fn answer(top: i32, height: i32) -> Area {
    Area(ANSWERS.0, top, ANSWERS.1, height)
}

/// Draws an arrow from a step to the next one.
fn down(canvas: &mut Canvas, from: i32, to: i32) {
    let middle = STEPS.0 + STEPS.1 / 2;
    canvas.arrow(&[(middle, from), (middle, to)], Tone::Plain);
}

fn right(canvas: &mut Canvas, from: i32, to: i32, y: i32, tone: Tone) {
    canvas.arrow(&[(from, y), (to, y)], tone);
}

/// Draws an arrow from a question to the member.
fn branch(canvas: &mut Canvas, y: i32, label: Label) {
    right(canvas, STEPS.0 + STEPS.1, MEMBER.0, y, Tone::Plain);
    canvas.text(((STEPS.0 + STEPS.1 + MEMBER.0) / 2 - 4, y - 8), Anchor::Middle, Tone::Plain, label);
}

/// Draws arrows from the member to answers at these heights.
fn fork(canvas: &mut Canvas, from: i32, to: &[(i32, Tone)]) {
    let (left, turn) = (MEMBER.0 + MEMBER.1, (MEMBER.0 + MEMBER.1 + ANSWERS.0) / 2 - 4);
    for (y, _) in to {
        canvas.line(&[(left, from), (turn, from), (turn, *y)], Tone::Plain);
    }
    for (y, tone) in to {
        canvas.arrow(&[(turn, *y), (ANSWERS.0, *y)], *tone);
    }
}
