//! Format of the scripts.
//!
//! A script is a list of steps, played in its own namespace. A step is a line, or a line with a body:
//!
//! | step | what it does |
//! |---|---|
//! | `MAKE path`, `SET path`, `DROP path` | creates, merge-patches or deletes; has to succeed; not recorded in the history |
//! | `EXPIRE path path` | deletes objects that share a lease at one version, which counts as a write |
//! | `GET`, `POST`, `PUT`, `PATCH`, `DELETE path` | sends a request and records its response |
//! | `WATCH w path` | opens the watch `w` |
//! | `READ w 3`, `READ w quiet`, `READ w end` | reads three events; until nothing arrives for a while; until the stream ends |
//! | `CLOSE w` | closes the client's end |
//! | `PAGE path` | sends a list that has to succeed and to have a next page: its token is `$page` from now on |
//! | `COMPACT`, `RESTART` | forgets old versions; kills the server and starts it again |
//!
//! A path begins with a resource (`configmaps/a?dryRun=All`) or with `/`. A word `@table` after it is a media type, see
//! [`media_type`]. Variables in paths and bodies: `$1`, `$2` ... the resourceVersion of the script's first, second ... write;
//! `$now` the newest resourceVersion, `$now+1000` a future one; `$page` the token of the latest `PAGE`; `$w` the resourceVersion
//! of the last event of watch `w`; `$uid.a` the UID of object `a`; `$ns` the namespace.

use serde_json::Value;

/// Script of a client's requests.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// Name `group/rest`: the group is the name of the file.
    pub(crate) name: String,
    /// Lines of the contract that the script shows: `L1` ... `W18`.
    pub(crate) shows: Vec<String>,
    /// True if no other script may run on the server meanwhile.
    pub(crate) alone: bool,
    pub(crate) steps: Vec<Step>,
}

/// Step of a script.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Line as written in the script.
    pub(crate) line: String,
    pub(crate) body: Option<Value>,
}

/// Returns the scripts of the files (name and text), and the generated ones.
pub(crate) fn all() -> Vec<Script> {
    const FILES: [(&str, &str); 8] = [
        ("errors", include_str!("../scripts/errors.yaml")),
        ("forms", include_str!("../scripts/forms.yaml")),
        ("history", include_str!("../scripts/history.yaml")),
        ("leases", include_str!("../scripts/leases.yaml")),
        ("lists", include_str!("../scripts/lists.yaml")),
        ("selectors", include_str!("../scripts/selectors.yaml")),
        ("watches", include_str!("../scripts/watches.yaml")),
        ("writes", include_str!("../scripts/writes.yaml")),
    ];
    let written = FILES.iter().flat_map(|(group, text)| parse(group, text));
    let mut scripts: Vec<Script> = written.chain(super::matrix::scripts()).collect();
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    let twice = scripts.windows(2).find(|pair| pair[0].name == pair[1].name);
    assert!(twice.is_none(), "two scripts have the name {}", twice.map_or("", |pair| &pair[0].name));
    scripts
}

/// Parses the scripts of a file.
///
/// # Panics
/// When the file is not as described above; it is part of the program.
fn parse(group: &str, text: &str) -> Vec<Script> {
    let scripts: Vec<Value> =
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("scripts/{group}.yaml: {error}"));
    scripts.iter().map(|script| Script::parse(group, script)).collect()
}

impl Script {
    fn parse(group: &str, script: &Value) -> Self {
        let name = script["name"].as_str().unwrap_or_else(|| panic!("{group}: a script without a name"));
        let shows = script["shows"].as_array().into_iter().flatten();
        let steps: Vec<Step> = script["steps"].as_array().into_iter().flatten().map(Step::parse).collect();
        assert!(!steps.is_empty(), "{group}/{name} has no steps");
        // Both affect other scripts.
        let alone = steps.iter().any(|step| matches!(&*step.line, "COMPACT" | "RESTART"));
        Self {
            name: format!("{group}/{name}"),
            shows: shows.filter_map(Value::as_str).map(str::to_owned).collect(),
            alone: alone || script["alone"] == true,
            steps,
        }
    }

    /// Returns the part of the name before the first slash.
    pub(crate) fn group(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }
}

impl Step {
    /// Creates a step without a body.
    pub(crate) fn line(line: impl Into<String>) -> Self {
        Self { line: line.into(), body: None }
    }

    /// Creates a step with a body.
    pub(crate) fn with(line: impl Into<String>, body: Value) -> Self {
        Self { line: line.into(), body: Some(body) }
    }

    fn parse(step: &Value) -> Self {
        match step {
            Value::String(line) => Self::line(line),
            Value::Object(map) if map.len() == 1 => {
                let (line, body) = map.iter().next().expect("one entry");
                Self::with(line, body.clone())
            }
            other => panic!("a step is a line, or a line with a body, not {other}"),
        }
    }

    /// Returns the words of the line: the verb and its arguments.
    pub(crate) fn words(&self) -> Vec<&str> {
        self.line.split_whitespace().collect()
    }
}

/// Returns the media type of the abbreviation `@short`.
///
/// # Panics
/// When the abbreviation is unknown.
pub(crate) fn media_type(short: &str) -> &'static str {
    match short {
        "@json" => "application/json",
        "@table" => "application/json;as=Table;v=v1;g=meta.k8s.io",
        "@table-or-json" => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "@table-v9" => "application/json;as=Table;v=v9;g=meta.k8s.io",
        "@partial" => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "@partials" => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "@protobuf" => "application/vnd.kubernetes.protobuf",
        "@protobuf-or-json" => "application/vnd.kubernetes.protobuf,application/json",
        "@xml" => "application/xml",
        "@any" => "*/*",
        "@json-patch" => "application/json-patch+json",
        "@merge-patch" => "application/merge-patch+json",
        "@strategic" => "application/strategic-merge-patch+json",
        "@yaml" => "application/yaml",
        other => panic!("no media type {other}"),
    }
}
