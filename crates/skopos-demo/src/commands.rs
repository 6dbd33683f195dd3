//! Commands to try in another terminal while the demo runs.
use std::path::Path;

/// Names that the commands use.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    /// The gateway's URL
    pub(crate) url: String,
    /// The kubeconfig whose contexts lead to the gateway
    pub(crate) kubeconfig: String,
    /// Names of the virtual clusters
    pub(crate) names: Vec<String>,
}

/// A command, and what it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Try {
    pub(crate) command: String,
    pub(crate) shows: &'static str,
}

/// Default URL of `skopos serve`, and so of `skopos status`.
const USUAL: &str = "http://127.0.0.1:8001";

impl Scene {
    /// Returns the commands, in the order of the demonstration.
    pub(crate) fn commands(&self) -> Vec<Try> {
        let Self { url, kubeconfig, names } = self;
        let name = |number: usize| names.get(number % names.len().max(1)).map_or("", String::as_str);
        let (first, second, third) = (name(0), name(1), name(2));
        let skopos = program();
        let server = if url == USUAL { String::new() } else { format!(" --server {url}") };
        let pairs = [
            (format!("export KUBECONFIG={kubeconfig}"), ""),
            ("kubectl get pods -A".into(), "all clusters in one list"),
            ("kubectl get pods -A -w".into(), "and in one watch, which survives what follows"),
            (
                format!("kubectl --context host scale sts {first} -n vcluster-{first} --replicas=0"),
                "its API server is gone; 1 brings it back",
            ),
            (format!("kubectl --context {first} get pods -A"), "answers still, and says how old that is"),
            (format!("{skopos} vc pause {second} --context host"), "as the vcluster CLI does; and resume"),
            (format!("curl -X POST {url}/virtualclusters/vcluster-{third}/{third}/pause"), "and /resume"),
            (format!("{skopos} status{server}"), "or top"),
        ];
        pairs.into_iter().map(|(command, shows)| Try { command, shows }).collect()
    }

    /// Returns the commands as lines, with what they show as comments.
    pub(crate) fn lines(&self) -> Vec<String> {
        let commands = self.commands();
        let width = commands.iter().map(|tried| tried.command.chars().count()).max().unwrap_or(0);
        let line = |tried: &Try| match tried.shows {
            "" => tried.command.clone(),
            shows => format!("{:<width$}  # {shows}", tried.command),
        };
        commands.iter().map(line).collect()
    }
}

/// Makes a kubeconfig whose contexts are the whole fleet (the current one) and each cluster, by context and the cluster's name.
pub(crate) fn kubeconfig(url: &str, clusters: &[(String, String)]) -> String {
    let mut text = "apiVersion: v1\nkind: Config\ncurrent-context: fleet\nclusters:\n".to_owned();
    let paths = clusters.iter().map(|(context, id)| (context.as_str(), format!("/clusters/{id}")));
    let all: Vec<_> = std::iter::once(("fleet", "/fleet".to_owned())).chain(paths).collect();
    for (context, path) in &all {
        text.push_str(&format!("- {{name: {context}, cluster: {{server: \"{url}{path}\"}}}}\n"));
    }
    text.push_str("contexts:\n");
    for (context, _) in &all {
        text.push_str(&format!("- {{name: {context}, context: {{cluster: {context}, user: me}}}}\n"));
    }
    text.push_str("users:\n- {name: me, user: {}}\n");
    text
}

/// Returns the name of this program if the shell finds it, or else its path, relative to the current directory if possible.
fn program() -> String {
    let fallback = || "skopos".to_owned();
    let Ok(path) = std::env::current_exe() else { return fallback() };
    let found = |folder: std::path::PathBuf| folder.join("skopos") == path;
    if std::env::var_os("PATH").is_some_and(|list| std::env::split_paths(&list).any(found)) {
        return fallback();
    }
    let here = std::env::current_dir().ok();
    let short = here.as_deref().and_then(|here| path.strip_prefix(here).ok()).map(Path::to_path_buf);
    short.unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(url: &str) -> Scene {
        let names = ["berlin", "lima", "oslo"].map(String::from).into();
        Scene { url: url.into(), kubeconfig: "/tmp/k".into(), names }
    }

    #[test]
    fn each_command_line_shows_its_purpose() {
        let lines = scene(USUAL).lines();
        assert_eq!(lines[0], "export KUBECONFIG=/tmp/k");
        assert!(
            lines[1].starts_with("kubectl get pods -A  ")
                && lines[1].ends_with("  # all clusters in one list")
        );
        assert!(lines[7].contains(" status  "), "{}", lines[7]);
        let other = scene("http://127.0.0.1:7").lines();
        assert!(other[7].contains("status --server http://127.0.0.1:7"), "{}", other[7]);
        assert!(other[6].contains("http://127.0.0.1:7/virtualclusters/vcluster-oslo/oslo/pause"));
    }

    #[test]
    fn kubeconfig_has_context_for_fleet_and_each_cluster() {
        let clusters =
            [("host".to_owned(), "host".to_owned()), ("lima".to_owned(), "lima.vcluster-lima".to_owned())];
        let text = kubeconfig("http://127.0.0.1:7", &clusters);
        let parsed = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(parsed.current_context.as_deref(), Some("fleet"));
        let servers: Vec<_> = parsed.clusters.into_iter().filter_map(|named| named.cluster?.server).collect();
        assert_eq!(servers[0], "http://127.0.0.1:7/fleet");
        assert_eq!(servers[2], "http://127.0.0.1:7/clusters/lima.vcluster-lima");
        assert_eq!(parsed.contexts.len(), 3);
    }
}
