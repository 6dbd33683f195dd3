//! The states of a cluster, as `skopos-fleet/src/cluster/machine.rs` has them.

use super::canvas::{Anchor, Area, Canvas, Language, Tone, same};

const CONNECTING: Area = Area(75, 106, 185, 92);
const LIVE: Area = Area(395, 106, 185, 92);
const UNREACHABLE: Area = Area(75, 352, 185, 92);
const DEGRADED: Area = Area(395, 352, 185, 92);
const PAUSED: Area = Area(676, 106, 168, 92);
const REMOVED: Area = Area(676, 352, 168, 92);

pub(super) fn draw(language: Language) -> Canvas {
    let mut canvas = Canvas::new(language, 580, ["The states of a cluster", "集群的状态"]);
    canvas.frame(Area(52, 66, 548, 420), same(""));
    blocks(&mut canvas);
    arrows_inside(&mut canvas);
    arrows_outside(&mut canvas);
    canvas.text(
        (75, 472),
        Anchor::Start,
        Tone::Plain,
        ["Skopos sends requests to the cluster.", "Skopos 向集群发送请求。"],
    );
    let notes = [
        "• If an answer shows a problem, such as `pods: forbidden`, the cluster is degraded and not live.\n\
         • A new address or new credentials lead back to connecting, but not from paused.\n\
         • After a resume, the cluster stays connecting while its API server is known to be starting.",
        "• 如果应答表明有问题（例如 `pods: forbidden`），集群进入 degraded，而不是 live。\n\
         • 地址或凭据变更后回到 connecting（paused 状态除外）。\n\
         • 恢复运行后，若已知 API server 仍在启动，集群保持 connecting。",
    ];
    canvas.text((52, 516), Anchor::Start, Tone::Plain, notes);
    canvas
}

fn blocks(canvas: &mut Canvas) {
    canvas.block(CONNECTING, Tone::Accent, same("connecting"), ["no answer yet", "尚无应答"]);
    canvas.block(LIVE, Tone::Good, same("live"), ["the server answers", "服务器有应答"]);
    canvas.block(
        DEGRADED,
        Tone::Warning,
        same("degraded"),
        ["answers with a problem,\nor fails for less than 5 s", "应答有问题，\n或失败不到 5 s"],
    );
    canvas.block(
        UNREACHABLE,
        Tone::Bad,
        same("unreachable"),
        ["does not answer;\nreads do not wait for it", "无应答；\n读请求不等待它"],
    );
    canvas.block(
        PAUSED,
        Tone::Plain,
        same("paused"),
        ["known to be switched\noff: no requests", "已知被关停：\n不发送请求"],
    );
    canvas.block(
        REMOVED,
        Tone::Plain,
        same("removed"),
        ["data stays readable\nfor 10 min, then goes", "数据再可读 10 min，\n之后删除"],
    );
}

/// Draws the transitions between the states with requests.
fn arrows_inside(canvas: &mut Canvas) {
    canvas.dot((20, 152), Tone::Plain);
    canvas.arrow(&[(20, 152), (75, 152)], Tone::Plain);
    canvas.text((8, 138), Anchor::Start, Tone::Plain, ["listed", "列出"]);
    canvas.arrow(&[(260, 152), (395, 152)], Tone::Good);
    canvas.text((327, 142), Anchor::Middle, Tone::Good, ["answers", "有应答"]);
    canvas.arrow(&[(120, 198), (120, 352)], Tone::Bad);
    canvas.text((128, 262), Anchor::Start, Tone::Bad, ["the first\nrequest fails", "首次请求失败"]);
    canvas.arrow(&[(235, 352), (410, 198)], Tone::Good);
    canvas.text((330, 296), Anchor::Start, Tone::Good, ["answers", "有应答"]);
    canvas.arrow(&[(460, 198), (460, 352)], Tone::Warning);
    canvas.text((466, 248), Anchor::Start, Tone::Warning, ["fails", "失败"]);
    canvas.arrow(&[(530, 352), (530, 198)], Tone::Good);
    canvas.text((536, 312), Anchor::Start, Tone::Good, ["answers", "有应答"]);
    canvas.arrow(&[(395, 398), (260, 398)], Tone::Bad);
    canvas.text((327, 388), Anchor::Middle, Tone::Bad, ["fails for 5 s", "失败满 5 s"]);
}

/// Draws the transitions of a pause and of a removal, which begin at the frame: from all states in it.
fn arrows_outside(canvas: &mut Canvas) {
    canvas.arrow(&[(600, 152), (676, 152)], Tone::Plain);
    canvas.text((638, 126), Anchor::Middle, Tone::Plain, ["switched\noff", "关停"]);
    canvas.arrow(&[(760, 106), (760, 40), (168, 40), (168, 106)], Tone::Plain);
    canvas.text((464, 30), Anchor::Middle, Tone::Plain, ["resumed", "恢复运行"]);
    canvas.arrow(&[(600, 398), (676, 398)], Tone::Plain);
    canvas.text((638, 372), Anchor::Middle, Tone::Plain, ["leaves\nthe fleet", "离开 fleet"]);
    canvas.arrow(&[(760, 198), (760, 352)], Tone::Plain);
    canvas.text((768, 272), Anchor::Start, Tone::Plain, ["leaves\nthe fleet", "离开 fleet"]);
}
