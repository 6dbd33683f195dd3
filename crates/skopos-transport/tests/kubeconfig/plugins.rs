//! Exec plugins.

use crate::world::{Caller, Outcome, World, asked_by, base64};

const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";

fn answer(version: &str, status: serde_json::Value) -> String {
    serde_json::json!({"apiVersion": version, "kind": "ExecCredential", "status": status}).to_string()
}

fn token(version: &str) -> String {
    answer(version, serde_json::json!({"token": "of-plugin"}))
}

fn plugin_outcome() -> Outcome {
    asked_by("Bearer of-plugin")
}

#[tokio::test]
async fn v1_needs_an_interactive_mode_and_v1beta1_does_not() {
    let world = World::start().await;
    for (version, mode, expected) in [
        (V1, "", Outcome::Refused),
        (V1, ", interactiveMode: Never", plugin_outcome()),
        (V1, ", interactiveMode: IfAvailable", plugin_outcome()),
        (V1, ", interactiveMode: Sometimes", Outcome::Refused),
        (V1BETA1, "", plugin_outcome()),
    ] {
        world.plugin("plugin", &token(version));
        let exec = format!("exec: {{apiVersion: {version}, command: ./plugin{mode}}}");
        world.check(&world.cluster(), &exec, &expected).await;
    }
}

#[tokio::test]
async fn refuses_interactive_plugin_without_terminal() {
    let world = World::start().await;
    world.plugin("plugin", &token(V1));
    let exec = format!("exec: {{apiVersion: {V1}, command: ./plugin, interactiveMode: Always}}");
    // These tests run with or without a terminal.
    if !std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        world.check(&world.cluster(), &exec, &Outcome::Refused).await;
    }
}

#[tokio::test]
async fn other_versions_of_plugins_are_refused() {
    let world = World::start().await;
    world.plugin("plugin", &token(V1));
    for version in ["apiVersion: client.authentication.k8s.io/v1alpha1, ", "apiVersion: v1, ", ""] {
        let exec = format!("exec: {{{version}command: ./plugin, interactiveMode: Never}}");
        world.check(&world.cluster(), &exec, &Outcome::Refused).await;
    }
}

#[tokio::test]
async fn refuses_answer_of_wrong_version_or_no_credentials() {
    let world = World::start().await;
    let me = world.issue(|_| {});
    for bad in [
        token(V1BETA1),
        token(V1).replace("ExecCredential", "Pod"),
        token(V1).replace(&format!("\"{V1}\""), "\"\""),
        answer(V1, serde_json::json!(null)),
        answer(V1, serde_json::json!({})),
        answer(V1, serde_json::json!({"token": ""})),
        answer(V1, serde_json::json!({"token": "t", "clientCertificateData": me.certificate})),
        "hello".to_owned(),
    ] {
        world.plugin("plugin", &bad);
        let exec = format!("exec: {{apiVersion: {V1}, command: ./plugin, interactiveMode: Never}}");
        world.check(&world.cluster(), &exec, &Outcome::Refused).await;
    }
}

#[tokio::test]
async fn a_plugin_may_give_a_token_and_a_certificate() {
    let world = World::start().await;
    let me = world.issue(|_| {});
    let status = serde_json::json!({
        "token": "of-plugin", "clientCertificateData": me.certificate.trim_end(), "clientKeyData": me.key.trim_end(),
    });
    world.plugin("plugin", &answer(V1, status));
    let exec = format!("exec: {{apiVersion: {V1}, command: ./plugin, interactiveMode: Never}}");
    let both = Caller {
        authorization: Some("Bearer of-plugin".into()),
        certificate: true,
        path: "/version".into(),
        ..Caller::default()
    };
    world.check(&world.cluster(), &exec, &Outcome::Asked(both)).await;
}

#[tokio::test]
async fn other_credentials_go_before_a_plugin() {
    let world = World::start().await;
    let path = world.plugin("plugin", &token(V1));
    world.write("token", "t");
    let exec = format!("exec: {{apiVersion: {V1}, command: ./plugin, interactiveMode: Never}}");
    world.check(&world.cluster(), &format!("token: t, {exec}"), &asked_by("Bearer t")).await;
    world.check(&world.cluster(), &format!("tokenFile: token, {exec}"), &asked_by("Bearer t")).await;
    let basic = asked_by(&format!("Basic {}", base64("me:p")));
    world.check(&world.cluster(), &format!("username: me, password: p, {exec}"), &basic).await;
    let me = world.issue(|_| {});
    let certificate =
        format!("client-certificate-data: {}, client-key-data: {}", base64(&me.certificate), base64(&me.key));
    let shown = crate::world::asked_with_certificate();
    world.check(&world.cluster(), &format!("{certificate}, {exec}"), &shown).await;
    assert!(!path.with_extension("runs").exists(), "it was run");
    // An empty token counts as none.
    world.check(&world.cluster(), &format!("token: '', {exec}"), &plugin_outcome()).await;
}

#[tokio::test]
async fn finds_plugin_beside_kubeconfig_or_in_path() {
    let world = World::start().await;
    let path = world.plugin("bin/plugin", &token(V1));
    for command in ["./bin/plugin", "bin/plugin", &path.display().to_string()] {
        let exec = format!("exec: {{apiVersion: {V1}, command: {command}, interactiveMode: Never}}");
        world.check(&world.cluster(), &exec, &plugin_outcome()).await;
    }
    // From PATH, with arguments and variables.
    let script = "printf '%s' \"$ANSWER\"";
    let exec = format!(
        "exec: {{apiVersion: {V1}, command: sh, args: ['-c', {script:?}], \
         env: [{{name: ANSWER, value: '{}'}}], interactiveMode: Never}}",
        token(V1)
    );
    world.check(&world.cluster(), &exec, &plugin_outcome()).await;
}

#[tokio::test]
async fn missing_plugin_error_shows_install_hint() {
    let world = World::start().await;
    let exec = |command: &str| {
        format!(
            "exec: {{apiVersion: {V1}, command: {command}, interactiveMode: Never, installHint: get it there}}"
        )
    };
    world.check(&world.cluster(), &exec("no-such-plugin"), &Outcome::Refused).await;
    let told = world.check_skopos(&world.cluster(), &exec("no-such-plugin"), &Outcome::Refused).await;
    assert!(told.contains("no-such-plugin was not found: get it there"), "{told}");
    world.check(&world.cluster(), &exec("'false'"), &Outcome::Refused).await;
}

#[tokio::test]
async fn requires_plugin_command_and_variable_names() {
    let world = World::start().await;
    world.plugin("plugin", &token(V1));
    for exec in [
        format!("exec: {{apiVersion: {V1}, interactiveMode: Never}}"),
        format!("exec: {{apiVersion: {V1}, command: ./plugin, interactiveMode: Never, env: [{{value: x}}]}}"),
        format!(
            "exec: {{apiVersion: {V1}, command: ./plugin, interactiveMode: Never}}, auth-provider: {{name: oidc}}"
        ),
    ] {
        world.check(&world.cluster(), &exec, &Outcome::Refused).await;
    }
}

#[tokio::test]
async fn plugin_gets_cluster_info_only_on_request() {
    let world = World::start().await;
    // It returns a token only if it knows the server and, without a terminal, that it is not interactive.
    let script = format!(
        "for part in '\"interactive\":false' '{}' certificate-authority-data; do \
         case \"$KUBERNETES_EXEC_INFO\" in *\"$part\"*) ;; *) exit 1;; esac; done; printf '%s' '{}'",
        world.https,
        token(V1)
    );
    for (told, expected) in [("true", plugin_outcome()), ("false", Outcome::Refused)] {
        let exec = format!(
            "exec: {{apiVersion: {V1}, command: sh, args: ['-c', {script:?}], interactiveMode: Never, \
             provideClusterInfo: {told}}}"
        );
        world.check(&world.cluster(), &exec, &expected).await;
    }
}
