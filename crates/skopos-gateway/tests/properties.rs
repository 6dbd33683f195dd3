//! The properties of `bodies`, on random input. `PROPTEST_CASES` sets the number of cases, which is small by default.

mod bodies;

use proptest::prelude::*;

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2000);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Makes pieces of a request, right and wrong, in any order.
fn request() -> impl Strategy<Value = String> {
    let method =
        prop::sample::select(vec!["GET ", "POST ", "PUT ", "PATCH ", "DELETE ", "HEAD ", "OPTIONS ", ""]);
    let path = prop::sample::select(vec![
        "/api/v1",
        "/apis/apps/v1",
        "/api",
        "/namespaces",
        "/shop",
        "/pods",
        "/deployments",
        "/nodes",
        "/namespaces/shop/nodes",
        "/web",
        "/status",
        "/exec",
        "/proxy",
        "/log",
        "/watch",
        "/%2e%2e",
        "/..",
        "/.",
        "//",
        "/%2F",
        "/%252e",
        "/a%3ab",
        "/%zz",
        "/é",
        "/%C3%A9",
        "/a;b",
        "/%00",
        "/finalize",
        "/customresourcedefinitions",
        "/",
    ]);
    let query = prop::sample::select(vec![
        "?",
        "&",
        "watch=1",
        "watch=0",
        "watch=true",
        "w%61tch",
        "=",
        "fieldSelector=metadata.name%3Dx",
        "fieldSelector=metadata.name!=x,metadata.namespace=y",
        "fieldSelector=a%3D%3D",
        "limit=1",
        ";",
        "%",
        "%26",
        "+",
        "labelSelector=a in (b)",
        "continue=abc",
        "resourceVersion=1",
    ]);
    let header = prop::sample::select(vec![
        "\nImpersonate-User: admin",
        "\nimpersonate_group: x",
        "\nImpersonate: x",
        "\nConnection: close",
        "\nConnection: Impersonate-User",
        "\nX-Remote-User: admin",
        "\nx_remote_group: y",
        "\nAccept: */*",
        "\nCookie: a=b",
        "\nSet-Cookie: a=b",
        "\nX: y",
        "\nskopos-source: forged",
        "\nAuthorization: Bearer x",
    ]);
    let parts = (
        method,
        prop::collection::vec(path, 0..9),
        prop::collection::vec(query, 0..5),
        prop::collection::vec(header, 0..4),
    );
    prop_oneof![
        8 => parts.prop_map(|(method, path, query, headers)| {
            format!("{method}{}{}{}", path.concat(), query.concat(), headers.concat())
        }),
        1 => any::<String>(),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn requests(text in request()) {
        bodies::gateway_request(&text);
    }
}
