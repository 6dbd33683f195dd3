//! The properties of `bodies`, on random input. `PROPTEST_CASES` sets more than the few cases of a default run.

mod bodies;

use proptest::prelude::*;

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(128);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Generates pieces of a kubeconfig, valid and invalid, in any order.
fn kubeconfig() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "apiVersion: v1\nkind: Config\n",
        "current-context: a\n",
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n",
        "clusters:\n- name: c\n  cluster: {server: 'https://[::1]:6443', certificate-authority-data: aGVsbG8=}\n",
        "clusters: [{name: c, cluster: {server: 'not a url'}}]\n",
        "clusters: [{name: c, cluster: {}}]\n",
        "clusters: {}\n",
        "contexts: [{name: a, context: {cluster: c, user: u, namespace: n}}]\n",
        "contexts: [{name: a, context: {cluster: x, user: u}}]\n",
        "contexts: [{name: a}]\n",
        "users: [{name: u, user: {token: t}}]\n",
        "users: [{name: u, user: {client-certificate-data: '%', client-key-data: aGVsbG8=}}]\n",
        "users: [{name: u, user: {client-certificate: no/such/file, client-key: no/such/file}}]\n",
        "users: [{name: u, user: {exec: {command: no-such-program, apiVersion: client.authentication.k8s.io/v1}}}]\n",
        "users: [{name: u, user: {auth-provider: {name: gcp, config: {}}}}]\n",
        "users: [{name: u, user: {tokenFile: no/such/file}}]\n",
        "x: &a [*a]\n",
        "---\n",
        "\t",
        "{",
    ]);
    prop_oneof![
        8 => prop::collection::vec(pieces, 0..7).prop_map(|pieces| pieces.concat()),
        1 => any::<String>(),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn servers(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        bodies::hostile_server(&bytes);
    }

    #[test]
    fn kubeconfigs(text in kubeconfig()) {
        bodies::kubeconfig(&text);
    }
}

/// Replays the fuzzer's saved inputs.
#[test]
fn replays_transport_fuzz_seeds() {
    let read = |target: &str| {
        let seeds = format!("{}/../../fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
        // A published crate comes without them.
        let seeds = std::fs::read_dir(seeds).into_iter().flatten();
        seeds.map(|seed| std::fs::read(seed.unwrap().path()).unwrap())
    };
    read("hostile_server").for_each(|bytes| bodies::hostile_server(&bytes));
    for text in read("kubeconfig").filter_map(|bytes| String::from_utf8(bytes).ok()) {
        bodies::kubeconfig(&text);
    }
}
