//! The programs of the documentation, compiled and run as documentation tests.

macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        $(#[doc = include_str!($page)] struct $name;)*
    };
}

pages! {
    Readme: "../../README.md",
    ReadmeInChinese: "../../README.zh-CN.md",
    StartController: "../../docs/start/controller.md",
    StartControllerInChinese: "../../docs/zh-CN/start/controller.md",
    StartTests: "../../docs/start/tests.md",
    StartTestsInChinese: "../../docs/zh-CN/start/tests.md",
    Age: "../../docs/concepts/age.md",
    AgeInChinese: "../../docs/zh-CN/concepts/age.md",
    FromKubeRs: "../../docs/how-to/from-kube-rs.md",
    FromClientGo: "../../docs/how-to/from-client-go.md",
    WriteAController: "../../docs/how-to/write-a-controller.md",
}
