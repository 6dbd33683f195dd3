//! Texts of the visitors' requests and answers.

use super::{Column, Teller};
use crate::history::{Answer, Asked, AtGateway, MemberId, Shown};

impl Teller<'_> {
    /// Returns the text of a fact about the visitor and the cluster in focus, if there are any.
    pub(super) fn visited(&mut self, fact: &AtGateway) -> Option<(Column, String)> {
        match fact {
            AtGateway::Forwarded { cluster, connection, verb, target } => {
                let resource = &self.history.names.targets[target.index()].resource;
                let told =
                    self.is_here(Some(*cluster)) && self.focus.informer.is_none() && !resource.is_empty();
                let text = format!("gateway: {verb:?} {resource} on {connection}").to_lowercase();
                told.then_some((Column::Wire, text))
            }
            AtGateway::Asked { visit, visitor, member, what } => {
                let another = self.focus.visitor.is_some_and(|focus| focus != *visitor);
                let cluster = member.map(|member| self.history.cast.members[member.index()].cluster);
                if another || self.focus.informer.is_some() || !self.is_here(cluster) {
                    return None;
                }
                let visitor = &self.history.cast.visitors[visitor.index()].name;
                let place = member.map_or("/fleet", |member| self.member(member));
                let text = format!("{visitor}: {} {place}", self.asked(*what));
                self.visits.push((*visit, text.clone()));
                Some((Column::Client, text))
            }
            AtGateway::Answered { visit, answer } => {
                let at = self.visits.iter().position(|(known, _)| known == visit)?;
                let (_, what) = self.visits.swap_remove(at);
                Some((Column::Client, format!("{what} gives {}", self.told(answer))))
            }
        }
    }

    fn asked(&self, what: Asked) -> String {
        let key = |key: crate::history::KeyId| &self.history.names.keys[key.index()];
        let within = |namespace: Option<u8>| match namespace {
            Some(at) => format!(" in {}", crate::cluster::NAMESPACES[usize::from(at)]),
            None => String::new(),
        };
        match what {
            Asked::Create { key: object, stamp } => format!("creates {} #{stamp} in", key(object)),
            Asked::Update { key: object, stamp } => format!("updates {} #{stamp} in", key(object)),
            Asked::Delete { key: object } => format!("deletes {} in", key(object)),
            Asked::Get { key: object, of } => format!("gets {} of {} from", key(object), self.member(of)),
            Asked::List { namespace } => format!("lists{} from", within(namespace)),
            Asked::Watch { namespace } => format!("watches{} from", within(namespace)),
        }
    }

    fn told(&self, answer: &Answer) -> String {
        let away: Vec<&str> = answer.away.iter().map(|member| self.member(*member)).collect();
        let away = if away.is_empty() { String::new() } else { format!(", old: {}", away.join(", ")) };
        let of_focus = |shown: &&Shown| self.focus.key.is_none_or(|key| key == shown.object.key);
        let shown: Vec<String> =
            answer.shown.iter().filter(of_focus).take(4).map(|shown| self.shown(shown)).collect();
        match answer.code {
            0 => "no answer".to_owned(),
            code => format!("{code}{away}, {} objects: {}", answer.shown.len(), shown.join(", ")),
        }
    }

    fn shown(&self, shown: &Shown) -> String {
        let member = shown.member.map_or("?", |member| self.member(member));
        let gone = if shown.gone { " gone" } else { "" };
        format!("{member} {}{gone}", self.seen(&shown.object))
    }

    fn member(&self, member: MemberId) -> &str {
        &self.history.cast.members[member.index()].name
    }
}
