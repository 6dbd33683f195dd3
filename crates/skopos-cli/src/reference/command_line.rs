//! The page about the command line, written from the clap command.
use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command};

use super::markdown::{Table, code};

const INTRO: &str = "\
This page lists every command of `skopos` with its arguments, options, defaults and environment variables.
The names and meanings of options are those of kubectl where kubectl has the same option.
Durations are written as `30s`, `1m30s`, `500ms` or a number of seconds; they must be more than 0 and at most 24 h.
";

const ENVIRONMENT: &str = "\
## Environment variables

| variable | commands | meaning |
|---|---|---|
| `KUBECONFIG` | `serve`, `watch`, `vc`, `notify` | kubeconfig files, as in kubectl |
| `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` | `serve`, `watch`, `vc` | proxies to clusters, see [kubeconfig](kubeconfig.md) |
| `KUBERNETES_SERVICE_HOST` | `watch`, `vc`, `notify` | set in pods: without a kubeconfig, the service account of the pod is used |
| `AWS_ACCESS_KEY_ID` and the like, `AWS_REGION` | `serve`, `notify` | credentials and region of [`checkpoints.bucket`](gateway-config.md) and [`state.bucket`](notify-config.md), if the configuration has none |
| `NO_COLOR`, `TERM` | all | `NO_COLOR` with any value turns colours off; so does `TERM=dumb` |
| `SKOPOS_LOG` | all | filter of the log, for example `skopos=debug`; it replaces `-v` |
| `SKOPOS_SERVER` | `status`, `top` | URL of the gateway, as `--server` |
";

/// Returns the page.
pub(super) fn page(mut command: Command) -> String {
    command.build();
    let mut page = format!("# Command line\n\n{INTRO}\n");
    page.push_str(&format!("## Global options\n\n{}", options(&command, &is_global)));
    page.push_str(&format!("{ENVIRONMENT}\n"));
    for subcommand in subcommands(&command) {
        page.push_str(&sections(subcommand, "skopos"));
    }
    page.trim_end().to_owned() + "\n"
}

/// Returns the section of a command, and behind it those of its subcommands.
fn sections(command: &Command, parent: &str) -> String {
    let name = format!("{parent} {}", command.get_name());
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let mut text = format!("## {name}\n\n{}\n\n```text\n{}\n```\n\n", about(command), usage.trim());
    let aliases: Vec<_> =
        command.get_visible_aliases().map(|alias| code(&format!("{parent} {alias}"))).collect();
    if !aliases.is_empty() {
        text.push_str(&format!("Also written {}.\n\n", aliases.join(", ")));
    }
    text.push_str(&positionals(command));
    text.push_str(&options(command, &|arg| !is_global(arg)));
    if let Some(help) = command.get_after_help() {
        text.push_str(&format!("```text\n{}\n```\n\n", help.to_string().trim()));
    }
    for subcommand in subcommands(command) {
        text.push_str(&sections(subcommand, &name));
    }
    text
}

fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about());
    let text = about.unwrap_or_else(|| panic!("no description: {}", command.get_name())).to_string();
    let mut paragraphs = text.split("\n\n").map(|part| part.replace('\n', " "));
    let first = paragraphs.next().unwrap_or_default();
    let rest: String = paragraphs.map(|part| format!("\n\n{part}")).collect();
    format!("{}.{rest}", first.trim_end_matches('.'))
}

fn positionals(command: &Command) -> String {
    let mut table = Table::new(&["argument", "required", "default", "meaning"]);
    for arg in command.get_positionals().filter(|arg| !arg.is_hide_set()) {
        let required = if arg.is_required_set() { "yes" } else { "no" };
        let (meaning, default) = meaning(arg);
        table.row([code(&value_names(arg)), required.into(), default, meaning]);
    }
    table.into_text() + &command.get_positionals().map(values).collect::<String>()
}

/// Returns the table of an argument's values, if there are too many for a cell.
fn values(arg: &Arg) -> String {
    let mut table = Table::new(&[&format!("value of `{}`", value_names(arg)), "meaning"]);
    for value in shown_values(arg).filter(|_| has_many_values(arg)) {
        table.row([code(value.get_name()), value.get_help().map(ToString::to_string).unwrap_or_default()]);
    }
    table.into_text()
}

fn has_many_values(arg: &Arg) -> bool {
    shown_values(arg).filter(|value| value.get_help().is_some()).count() > 3
}

fn shown_values(arg: &Arg) -> impl Iterator<Item = PossibleValue> {
    let takes_values = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let values = if takes_values { arg.get_possible_values() } else { Vec::new() };
    values.into_iter().filter(|value| !value.is_hide_set())
}

fn options(command: &Command, is_wanted: &dyn Fn(&Arg) -> bool) -> String {
    let mut table = Table::new(&["option", "default", "meaning"]);
    let options = command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
    for arg in options.filter(|arg| is_wanted(arg)) {
        let (meaning, default) = meaning(arg);
        table.row([spelling(arg), default, meaning]);
    }
    table.into_text()
}

/// Returns the spellings of an option, with the name of its value.
fn spelling(arg: &Arg) -> String {
    let value =
        if arg.get_action().takes_values() { format!(" {}", value_names(arg)) } else { String::new() };
    let short = arg.get_short().map(|short| code(&format!("-{short}{value}")));
    let long = arg.get_long().map(|long| code(&format!("--{long}{value}")));
    short.into_iter().chain(long).collect::<Vec<_>>().join(", ")
}

fn value_names(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Returns the meaning of an argument, with its allowed values, and its default.
fn meaning(arg: &Arg) -> (String, String) {
    let help = arg.get_long_help().or(arg.get_help());
    let help = help.unwrap_or_else(|| panic!("no description: {}", arg.get_id())).to_string();
    let (mut text, mut default) = split_default(&help.replace("\n\n", ". ").replace('\n', " "));
    if let Some(variable) = arg.get_env() {
        text = format!("{text}; environment variable {}", code(&variable.to_string_lossy()));
    }
    if !allowed(arg).is_empty() {
        text = format!("{text}: {}", allowed(arg));
    }
    let values = arg.get_default_values().iter().map(|value| code(&value.to_string_lossy()));
    if arg.get_action().takes_values() && !arg.get_default_values().is_empty() {
        default = values.collect::<Vec<_>>().join(", ");
    }
    (text, default)
}

/// Returns the allowed values of an argument, with their meanings.
fn allowed(arg: &Arg) -> String {
    if has_many_values(arg) {
        return String::new();
    }
    let values = shown_values(arg).map(|value| {
        let help = value.get_help().map(|help| format!(" ({})", lower_first(&help.to_string())));
        code(value.get_name()) + &help.unwrap_or_default()
    });
    values.collect::<Vec<_>>().join(", ")
}

/// Splits `[default: X]`, or the last sentence `Default: X.`, from the meaning.
fn split_default(help: &str) -> (String, String) {
    if let Some((before, rest)) = help.split_once(" [default: ")
        && let Some((default, after)) = rest.split_once(']')
    {
        return (format!("{before}{after}"), default.to_owned());
    }
    let (meaning, default) = super::markdown::split_default(help);
    (meaning, default.unwrap_or_default())
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    let is_word = text.chars().nth(1).is_some_and(char::is_lowercase);
    match chars.next() {
        Some(first) if is_word => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

fn is_global(arg: &Arg) -> bool {
    arg.is_global_set() || ["help", "version"].contains(&arg.get_id().as_str())
}
