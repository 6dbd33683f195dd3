//! From `--kubeconfig` and `--context` to a cluster's configuration, or a line that says what to change.
use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::args::ClusterArgs;
use crate::error::{CliError, chain};

/// The configuration of the cluster that the flags mean.
///
/// As kubectl looks for it: the flag, then `$KUBECONFIG`, then `~/.kube/config`, then the service account of the pod that
/// this runs in.
pub(crate) async fn load(args: &ClusterArgs) -> Result<Config, CliError> {
    let Some((kubeconfig, source)) = kubeconfig(args)? else {
        return Config::incluster()
            .map_err(|error| CliError::new(format!("the pod's service account cannot be used: {error}")));
    };
    check_context(&kubeconfig, args.context.as_deref(), &source)?;
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    let config = skopos::transport::config_from_kubeconfig(kubeconfig, &options);
    config.await.map_err(|error| CliError::new(format!("kubeconfig {source}: {}", chain(&error))))
}

/// The name of the context that the flags mean; `None` in a pod, where there is none.
pub(crate) fn context(args: &ClusterArgs) -> Result<Option<String>, CliError> {
    let found = kubeconfig(args)?.and_then(|(kubeconfig, _)| kubeconfig.current_context);
    Ok(args.context.clone().or(found))
}

/// The kubeconfig that the flags mean and what it is called; `None`: the pod's service account.
fn kubeconfig(args: &ClusterArgs) -> Result<Option<(Kubeconfig, String)>, CliError> {
    Ok(Some(match Source::find(args)? {
        Source::InCluster if args.context.is_some() => {
            return Err(CliError::new("--context needs a kubeconfig, and there is none")
                .hint("name it with --kubeconfig FILE"));
        }
        Source::InCluster => return Ok(None),
        Source::File(path) => (read(&path)?, path.display().to_string()),
        Source::Environment(text) => {
            let kubeconfig = Kubeconfig::read().map_err(|error| unreadable(&error, Path::new(&text)))?;
            (kubeconfig, text)
        }
    }))
}

enum Source {
    File(PathBuf),
    Environment(String),
    InCluster,
}

impl Source {
    fn find(args: &ClusterArgs) -> Result<Self, CliError> {
        if let Some(path) = &args.kubeconfig {
            return Ok(Self::File(path.clone()));
        }
        if let Some(list) = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
            return Ok(Self::Environment(list.to_string_lossy().into_owned()));
        }
        let default = std::env::home_dir().map(|home| home.join(".kube").join("config"));
        if let Some(path) = default.filter(|path| path.exists()) {
            return Ok(Self::File(path));
        }
        if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            return Ok(Self::InCluster);
        }
        Err(CliError::new("there is no cluster to talk to (no KUBECONFIG, no ~/.kube/config)")
            .hint("name a kubeconfig with --kubeconfig FILE, or make a cluster with `skopos testserver`"))
    }
}

fn read(path: &Path) -> Result<Kubeconfig, CliError> {
    Kubeconfig::read_from(path).map_err(|error| unreadable(&error, path))
}

fn unreadable(error: &KubeconfigError, path: &Path) -> CliError {
    let what = match error {
        KubeconfigError::ReadConfig(cause, path) => {
            format!("kubeconfig {} cannot be read: {cause}", path.display())
        }
        // The parser's text goes on over many lines with an excerpt, which may hold secrets.
        KubeconfigError::Parse(cause) => {
            let text = cause.to_string();
            let first = text.lines().next().unwrap_or_default().trim_end_matches(':').to_owned();
            format!("kubeconfig {} is not a kubeconfig: {first}", path.display())
        }
        other => format!("kubeconfig {}: {other}", path.display()),
    };
    CliError::new(what)
}

/// Finds out what kube's own error would not tell: which contexts there are.
fn check_context(kubeconfig: &Kubeconfig, wanted: Option<&str>, source: &str) -> Result<(), CliError> {
    let names: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    let known = match names.as_slice() {
        [] => "it has none".to_owned(),
        few => format!("it has {}", few.iter().take(10).copied().collect::<Vec<_>>().join(", ")),
    };
    match wanted.or(kubeconfig.current_context.as_deref()).filter(|name| !name.is_empty()) {
        Some(name) if names.contains(&name) => Ok(()),
        Some(name) => {
            Err(CliError::new(format!("kubeconfig {source} has no context \"{name}\"")).hint(known))
        }
        None => Err(CliError::new(format!("kubeconfig {source} has no current context"))
            .hint(format!("choose one with --context; {known}"))),
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
    async fn an_unknown_context_is_answered_with_those_that_exist() {
        assert_eq!(
            with(GOOD, Some("elsewhere")).await.unwrap_err(),
            "error: kubeconfig DIR/config has no context \"elsewhere\": it has here, there"
        );
        assert_eq!(
            with("apiVersion: v1", None).await.unwrap_err(),
            "error: kubeconfig DIR/config has no current context: choose one with --context; it has none"
        );
    }

    #[tokio::test]
    async fn broken_ones_are_one_clear_line() {
        let error = with(GOOD, Some("there")).await.unwrap_err();
        assert!(error.contains("cluster of context"), "{error}");
        let error = with("clusters: 17\nusers: [{name: u, user: {token: secret}}]", None).await.unwrap_err();
        assert!(error.starts_with("error: kubeconfig DIR/config is not a kubeconfig: "), "{error}");
        assert!(!error.contains("secret") && !error.contains('\n'), "{error}");
        let missing = ClusterArgs { kubeconfig: Some("/nonexistent/config".into()), context: None };
        let error = load(&missing).await.unwrap_err().line().unwrap();
        assert!(
            error.starts_with("error: kubeconfig /nonexistent/config cannot be read: No such file"),
            "{error}"
        );
    }
}
