//! Authorization rules of the configuration.

use super::Attributes;
use crate::auth::Identity;
use crate::config::PolicyRule;

/// A list of rules. A request is allowed if one of them allows it.
#[derive(Debug)]
pub(super) struct Policy {
    rules: Vec<PolicyRule>,
}

/// The verbs of a rule that names none.
const READING: [&str; 3] = ["get", "list", "watch"];

impl Policy {
    pub(super) fn new(rules: Vec<PolicyRule>) -> Self {
        Self { rules }
    }

    pub(super) fn allows(&self, cluster: &str, who: &Identity, what: &Attributes) -> bool {
        self.rules.iter().any(|rule| concerns(rule, cluster, who) && covers(rule, what))
    }
}

fn concerns(rule: &PolicyRule, cluster: &str, who: &Identity) -> bool {
    let named = rule.users.iter().any(|user| user == "*" || *user == who.user);
    let member = rule.groups.iter().any(|group| who.groups.contains(group));
    (named || member) && any(&rule.clusters, cluster)
}

fn covers(rule: &PolicyRule, what: &Attributes) -> bool {
    let verb = match rule.verbs.is_empty() {
        true => READING.contains(&what.verb.as_str()),
        false => any(&rule.verbs, &what.verb),
    };
    if !verb {
        return false;
    }
    if !what.path.is_empty() {
        // Paths only describe the available resources. Health and the like are readable for callers who may read anything. A
        // rule for some resources must not open other paths.
        return READING.contains(&what.verb.as_str()) && is_description(&what.path);
    }
    let resource = match what.subresource.as_str() {
        "" => what.resource.clone(),
        sub => format!("{}/{sub}", what.resource),
    };
    // A rule with namespaces does not cover cluster-scoped objects or requests over all namespaces.
    any(&rule.api_groups, &what.group)
        && any(&rule.resources, &resource)
        && any(&rule.namespaces, &what.namespace)
}

/// Returns whether `list` is empty, or contains the word or a star.
fn any(list: &[String], word: &str) -> bool {
    list.is_empty() || list.iter().any(|item| item == "*" || item == word)
}

/// Returns whether the path is discovery, OpenAPI or version.
fn is_description(path: &str) -> bool {
    ["/api", "/apis", "/openapi", "/version"]
        .iter()
        .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn jane() -> Identity {
        Identity::authenticated("jane", ["dev".to_owned()])
    }

    fn pods(verb: &str) -> Attributes {
        Attributes::resource(verb, "", "v1", "pods")
    }

    #[test]
    fn a_rule_without_verbs_lets_read() {
        let policy = Policy::new(vec![PolicyRule { groups: list(&["dev"]), ..PolicyRule::default() }]);
        for verb in READING {
            assert!(policy.allows("a", &jane(), &pods(verb)));
        }
        for verb in ["create", "delete", "deletecollection", "impersonate", "*"] {
            assert!(!policy.allows("a", &jane(), &pods(verb)), "{verb}");
        }
        assert!(!policy.allows("a", &Identity::authenticated("joe", []), &pods("get")));
    }

    #[test]
    fn every_list_narrows() {
        let rule = PolicyRule {
            users: list(&["jane"]),
            clusters: list(&["a"]),
            verbs: list(&["get"]),
            api_groups: list(&[""]),
            resources: list(&["pods"]),
            namespaces: list(&["shop"]),
            ..PolicyRule::default()
        };
        let policy = Policy::new(vec![rule]);
        let fitting = pods("get").in_namespace("shop");
        assert!(policy.allows("a", &jane(), &fitting));
        assert!(!policy.allows("b", &jane(), &fitting));
        let others = [
            pods("get"),
            pods("get").in_namespace("other"),
            pods("list").in_namespace("shop"),
            Attributes::resource("get", "", "v1", "secrets").in_namespace("shop"),
            Attributes::resource("get", "apps", "v1", "pods").in_namespace("shop"),
            Attributes { subresource: "log".into(), ..fitting },
        ];
        for other in others {
            assert!(!policy.allows("a", &jane(), &other), "{other:?}");
        }
    }

    #[test]
    fn a_rule_opens_descriptions_and_no_other_path() {
        let policy = Policy::new(vec![PolicyRule { users: list(&["*"]), ..PolicyRule::default() }]);
        let path = |path: &str| Attributes::path(&http::Method::GET, path);
        for open in ["/api", "/apis/apps/v1", "/openapi/v3", "/version"] {
            assert!(policy.allows("a", &jane(), &path(open)), "{open}");
        }
        for shut in ["/metrics", "/logs", "/debug/pprof", "/apiserver"] {
            assert!(!policy.allows("a", &jane(), &path(shut)), "{shut}");
        }
        assert!(!policy.allows("a", &jane(), &Attributes::path(&http::Method::POST, "/api")));
    }
}
