//! Resolves `--kubeconfig` and `--context` to a cluster's configuration, or to an error line that says what to change.
use kube::Config;
use skopos::transport::{Kubeconfig, KubeconfigPaths};
use skopos_console::error::CliError;

use crate::args::ClusterArgs;

/// Returns the configuration of the cluster that the flags select.
///
/// The order is kubectl's: the flag, then `$KUBECONFIG`, then `~/.kube/config`, then the service account of the pod that
/// this process runs in.
pub(crate) async fn load(args: &ClusterArgs) -> Result<Config, CliError> {
    let Some((kubeconfig, source)) = kubeconfig(args).await? else {
        return Config::incluster()
            .map_err(|error| CliError::new(format!("the pod's service account cannot be used: {error}")));
    };
    check_context(&kubeconfig, args.context.as_deref(), &source)?;
    kubeconfig
        .config(args.context.as_deref())
        .map_err(|error| CliError::new(format!("kubeconfig {source}: {error}")))
}

/// Returns the name of the context that the flags select; `None` in a pod without a kubeconfig.
pub(crate) async fn context(args: &ClusterArgs) -> Result<Option<String>, CliError> {
    let found = kubeconfig(args).await?;
    let current = found.as_ref().and_then(|(kubeconfig, _)| kubeconfig.current_context());
    Ok(args.context.clone().or(current.map(str::to_owned)))
}

/// Returns the kubeconfig that the flags select and its name for messages; `None`: the pod's service account.
async fn kubeconfig(args: &ClusterArgs) -> Result<Option<(Kubeconfig, String)>, CliError> {
    let paths = match &args.kubeconfig {
        Some(path) => KubeconfigPaths::file(path),
        None => KubeconfigPaths::from_environment(),
    };
    if args.kubeconfig.is_none() && !paths.exist() {
        return match std::env::var_os("KUBERNETES_SERVICE_HOST") {
            Some(_) if args.context.is_some() => {
                Err(CliError::new("--context needs a kubeconfig, and there is none")
                    .hint("name it with --kubeconfig FILE"))
            }
            Some(_) => Ok(None),
            None => Err(no_kubeconfig(&paths)),
        };
    }
    let name = paths.to_string();
    let read = tokio::task::spawn_blocking(move || paths.read()).await.map_err(CliError::new)?;
    Ok(Some((read.map_err(CliError::new)?, name)))
}

/// Returns the error for a missing kubeconfig.
pub(crate) fn no_kubeconfig(paths: &KubeconfigPaths) -> CliError {
    CliError::new(format!("there is no kubeconfig ({paths} does not exist)"))
        .hint("name one with --kubeconfig FILE, or make a cluster with `skopos testserver`")
}

/// Returns an error that lists the existing contexts if the chosen one is missing.
fn check_context(kubeconfig: &Kubeconfig, wanted: Option<&str>, source: &str) -> Result<(), CliError> {
    let names: Vec<&str> = kubeconfig.contexts().collect();
    if names.is_empty() {
        return Err(CliError::new(format!("kubeconfig {source} defines no contexts")));
    }
    let known = names.iter().take(10).copied().collect::<Vec<_>>().join(", ");
    match wanted.filter(|name| !name.is_empty()).or(kubeconfig.current_context()) {
        Some(name) if names.contains(&name) => Ok(()),
        Some(name) => Err(CliError::new(format!("kubeconfig {source} has no context \"{name}\""))
            .hint(format!("it has {known}"))),
        None => Err(CliError::new(format!("kubeconfig {source} has no current context"))
            .hint(format!("choose one with --context: {known}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
contexts:
- {name: here, context: {cluster: c, user: u, namespace: shop}}
- {name: there, context: {cluster: missing, user: u}}
users: [{name: u, user: {}}]
";

    async fn with(text: &str, context: Option<&str>) -> Result<Config, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, text).unwrap();
        let args = ClusterArgs { kubeconfig: Some(path), context: context.map(Into::into) };
        let dir = dir.path().display().to_string();
        load(&args).await.map_err(|error| error.line().unwrap().replace(&dir, "DIR"))
    }

    #[tokio::test]
    async fn a_good_one_is_taken() {
        let config = with(GOOD, None).await.unwrap();
        assert_eq!(config.default_namespace, "shop");
        assert_eq!(config.cluster_url.host(), Some("127.0.0.1"));
    }

    #[tokio::test]
    async fn unknown_context_error_lists_contexts() {
        assert_eq!(
            with(GOOD, Some("elsewhere")).await.unwrap_err(),
            "error: kubeconfig DIR/config has no context \"elsewhere\": it has here, there"
        );
        assert_eq!(
            with("apiVersion: v1", None).await.unwrap_err(),
            "error: kubeconfig DIR/config defines no contexts"
        );
        assert_eq!(
            with(&GOOD.replace("current-context: here", ""), None).await.unwrap_err(),
            "error: kubeconfig DIR/config has no current context: choose one with --context: here, there"
        );
    }

    #[tokio::test]
    async fn broken_ones_are_one_clear_line() {
        let error = with(GOOD, Some("there")).await.unwrap_err();
        assert_eq!(error, "error: kubeconfig DIR/config: there is no cluster \"missing\"");
        let error = with("clusters: 17\nusers: [{name: u, user: {token: secret}}]", None).await.unwrap_err();
        assert!(error.starts_with("error: kubeconfig DIR/config: not a kubeconfig: "), "{error}");
        assert!(!error.contains("secret") && !error.contains('\n'), "{error}");
        let missing = ClusterArgs { kubeconfig: Some("/nonexistent/config".into()), context: None };
        let error = load(&missing).await.unwrap_err().line().unwrap();
        assert!(
            error.starts_with("error: kubeconfig /nonexistent/config cannot be read: No such file"),
            "{error}"
        );
    }
}
