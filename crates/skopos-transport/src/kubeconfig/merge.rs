//! Merging of several kubeconfigs.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret as _, SecretString};

use super::file::{ClusterEntry, File, Named, NamedContext, UserEntry};
use super::some;

/// Merges files: of each name the first entry counts, whole, and so does the first current context. Also returns the
/// contexts that lead elsewhere than in their own file.
pub(super) fn merge(files: Vec<File>) -> (File, Vec<String>) {
    let mut merged = File::default();
    for file in &files {
        extend(&mut merged.clusters, &file.clusters);
        extend(&mut merged.users, &file.users);
        extend(&mut merged.contexts, &file.contexts);
        merged.has_contexts |= file.has_contexts;
        merged.current_context = merged.current_context.or_else(|| file.current_context.clone());
    }
    let mut hidden = BTreeSet::new();
    for file in &files {
        let is_hidden = |context: &&NamedContext| !leads_where(file, &merged, &context.name);
        hidden.extend(file.contexts.iter().filter(is_hidden).map(|context| context.name.clone()));
    }
    (merged, hidden.into_iter().collect())
}

fn extend<T: Named + Clone>(merged: &mut Vec<T>, entries: &[T]) {
    let new = |entry: &&T| merged.iter().all(|known| known.name() != entry.name());
    let new: Vec<T> = entries.iter().filter(new).cloned().collect();
    merged.extend(new);
}

/// Returns whether a context of a file leads to the same server, as the same user, after merging. Parts missing in its own
/// file come from another file on purpose.
fn leads_where(file: &File, merged: &File, context: &str) -> bool {
    let (Ok(own), Ok(other)) = (file.context(Some(context)), merged.context(Some(context))) else {
        return true;
    };
    let same_cluster = match (file.cluster(&own.cluster), merged.cluster(&other.cluster)) {
        (Ok(own), Ok(other)) => is_same_server(own, other),
        _ => true,
    };
    let user = |file: &File, name: &Option<String>| some(name).and_then(|name| file.user(name).cloned());
    let same_user = match (user(file, &own.user), user(merged, &other.user)) {
        (Some(own), Some(other)) => is_same_user(&own, &other),
        _ => true,
    };
    same_cluster && same_user
}

fn is_same_server(one: &ClusterEntry, other: &ClusterEntry) -> bool {
    one.server == other.server
}

fn is_same_user(one: &UserEntry, other: &UserEntry) -> bool {
    let same = |one: &Option<SecretString>, other: &Option<SecretString>| {
        one.as_ref().map(SecretString::expose_secret) == other.as_ref().map(SecretString::expose_secret)
    };
    let command = |user: &UserEntry| user.exec.as_ref().map(|exec| (exec.command.clone(), exec.args.clone()));
    same(&one.token, &other.token)
        && same(&one.password, &other.password)
        && one.username == other.username
        && one.token_file == other.token_file
        && one.client_certificate == other.client_certificate
        && one.client_certificate_data == other.client_certificate_data
        && command(one) == command(other)
}
