//! The places of hosts, virtual clusters, the gateway and its addresses, and the notifier.

use super::canvas::{Anchor, Area, Canvas, Label, Language, Tone, same};

/// The rows of the gateway's addresses, each beside what it leads to.
const ROWS: [i32; 5] = [70, 132, 194, 256, 338];
const ROW_HEIGHT: i32 = 48;
/// The frame of the host cluster.
const HOST: Area = Area(632, 56, 212, 262);

pub(super) fn draw(language: Language) -> Canvas {
    let mut canvas = Canvas::new(language, 544, ["Addresses of many clusters", "多个集群的地址"]);
    clients(&mut canvas);
    clusters(&mut canvas);
    gateway(&mut canvas);
    notifier(&mut canvas);
    canvas
}

fn clients(canvas: &mut Canvas) {
    let clients: [(i32, i32, Label, Label); 3] = [
        (
            70,
            86,
            same("kubectl"),
            [
                "`--server` with the\naddress of a cluster\nor of the fleet",
                "`--server` 指向\n单个集群\n或整个 fleet",
            ],
        ),
        (178, 86, ["Controllers", "控制器"], ["client-go, kube-rs,\nSkopos", "client-go、kube-rs、\nSkopos"]),
        (286, 86, ["Monitoring", "监控"], ["`skopos status`,\nPrometheus", "`skopos status`、\nPrometheus"]),
    ];
    for (top, height, title, body) in clients {
        canvas.block(Area(20, top, 176, height), Tone::Plain, title, body);
        canvas.arrow(&[(196, top + height / 2), (250, top + height / 2)], Tone::Plain);
    }
}

fn gateway(canvas: &mut Canvas) {
    canvas.frame(Area(250, 30, 324, 374), ["`skopos serve`: one address", "`skopos serve`：同一个地址"]);
    let rows = [
        ["`/virtualclusters`\ncreate, pause, resume, delete", "`/virtualclusters`\n创建、暂停、恢复、删除"],
        same("`/clusters/host`"),
        same("`/clusters/dev.team`"),
        same("`/clusters/test.team`"),
        same("`/clusters/prod`"),
    ];
    canvas.block(
        Area(264, ROWS[1], 96, ROWS[4] + ROW_HEIGHT - ROWS[1]),
        Tone::Good,
        same("`/fleet`"),
        ["all clusters\nas one API", "所有集群\n合为一个 API"],
    );
    for (top, label) in ROWS.into_iter().zip(rows) {
        let is_cluster = top != ROWS[0];
        let (left, width) = if is_cluster { (392, 170) } else { (264, 298) };
        let target = if top == ROWS[0] || top == ROWS[4] { HOST.0 } else { HOST.0 + 14 };
        let tone = if is_cluster { Tone::Accent } else { Tone::Plain };
        canvas.block(Area(left, top, width, ROW_HEIGHT), tone, same(""), label);
        if is_cluster {
            canvas.arrow(&[(360, top + 24), (392, top + 24)], Tone::Good);
        }
        canvas.arrow(&[(562, top + 24), (target, top + 24)], tone);
    }
}

fn clusters(canvas: &mut Canvas) {
    canvas.frame(HOST, ["Host cluster", "宿主集群"]);
    let inside: [(i32, Tone, Label); 3] = [
        (ROWS[1], Tone::Accent, ["API server of the host", "宿主集群的 API server"]),
        (
            ROWS[2],
            Tone::Accent,
            ["virtual cluster dev\nin namespace team", "虚拟集群 dev\n位于命名空间 team"],
        ),
        (
            ROWS[3],
            Tone::Warning,
            ["virtual cluster test\npaused: memory answers", "虚拟集群 test\n已暂停：由内存应答"],
        ),
    ];
    for (top, tone, body) in inside {
        canvas.block(Area(HOST.0 + 14, top, HOST.2 - 28, ROW_HEIGHT), tone, same(""), body);
    }
    canvas.block(
        Area(HOST.0, ROWS[4], HOST.2, ROW_HEIGHT),
        Tone::Accent,
        same(""),
        ["cluster prod,\nfrom a kubeconfig", "集群 prod，\n来自 kubeconfig"],
    );
}

/// Draws the notifier, which reads one cluster and writes to the outside.
fn notifier(canvas: &mut Canvas) {
    canvas.block(
        Area(264, 444, 298, 64),
        Tone::Good,
        same("`skopos notify`"),
        ["keeps the outside equal to one cluster", "使外部系统与一个集群保持一致"],
    );
    canvas.arrow(&[(562, 476), (738, 476), (738, 386)], Tone::Plain);
    canvas.text((650, 466), Anchor::Middle, Tone::Plain, ["list, watch", "list、watch"]);
    let sinks: [(i32, Label); 3] = [
        (426, same("DNS")),
        (460, ["HAProxy, IPVS", "HAProxy、IPVS"]),
        (494, ["inventories, webhooks", "资产清单、webhook"]),
    ];
    for (top, label) in sinks {
        canvas.block(Area(20, top, 176, 30), Tone::Plain, same(""), label);
        canvas.arrow(&[(264, 476), (230, 476), (230, top + 15), (196, top + 15)], Tone::Plain);
    }
}
