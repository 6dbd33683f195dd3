//! What was done to the objects, and whether what a client was given is that.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow, ensure};
use peer_protocol::{Change, EventLine, Version};
use serde_json::{Value, json};
use skopos_testserver::TestServer;

use crate::belief::{Objects, digest_of};
use crate::server::NAMESPACE;

/// All changes of each object, in their order.
pub(super) struct Truth {
    server: TestServer,
    random: fastrand::Rng,
    steps: BTreeMap<String, Vec<Step>>,
}

/// A version of an object, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    uid: String,
    /// Nothing: deleted.
    version: Option<String>,
}

/// What a client was given, each change once: what is listed again is no other change.
pub(super) struct Given<'a> {
    steps: BTreeMap<&'a str, Vec<Step>>,
}

impl Truth {
    pub(super) fn new(server: TestServer, random: fastrand::Rng) -> Self {
        Self { server, random, steps: BTreeMap::new() }
    }

    pub(super) fn server(&self) -> &TestServer {
        &self.server
    }

    /// Does one thing to one of six objects.
    pub(super) fn change(&mut self) -> Result<()> {
        let name = ["a", "b", "c", "d", "e", "f"][self.random.usize(..6)];
        let steps = self.steps.entry(format!("{NAMESPACE}/{name}")).or_default();
        let is_there = steps.last().is_some_and(|step| step.version.is_some());
        if is_there && self.random.u8(..4) == 0 {
            let gone = self.server.delete("configmaps", Some(NAMESPACE), name);
            let gone = gone.map_err(|status| anyhow!("{status:?}"))?;
            steps.push(Step { uid: text(&gone, "uid"), version: None });
            return Ok(());
        }
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": NAMESPACE, "name": name},
            "data": {"value": self.random.u64(..).to_string()},
        });
        let put = self.server.apply(object).map_err(|status| anyhow!("{status:?}"))?;
        steps.push(Step { uid: text(&put, "uid"), version: Some(text(&put, "resourceVersion")) });
        Ok(())
    }

    /// How many changes there were.
    pub(super) fn len(&self) -> usize {
        self.steps.values().map(Vec::len).sum()
    }

    /// What there is now.
    pub(super) fn objects(&self) -> Objects {
        let there = self.steps.iter().filter_map(|(key, steps)| {
            let step = steps.last()?;
            Some((key.clone(), Version { uid: step.uid.clone(), rv: step.version.clone()? }))
        });
        there.collect()
    }

    pub(super) fn digest(&self) -> String {
        digest_of(&self.objects())
    }

    /// Whether this is all that was done since the client began.
    pub(super) fn is(&self, given: &Given<'_>) -> Result<()> {
        self.includes(given)?;
        for (key, steps) in &given.steps {
            let since = self.since(key, steps)?;
            ensure!(steps == since, "{key}: {steps:?} instead of {since:?}");
        }
        // What was deleted before a client began is nothing to it.
        let missing = self.objects().into_keys().find(|key| !given.steps.contains_key(key.as_str()));
        ensure!(missing.is_none(), "{missing:?} is missing");
        Ok(())
    }

    /// Whether this was done, in this order, though something may have been between.
    pub(super) fn includes(&self, given: &Given<'_>) -> Result<()> {
        for (key, steps) in &given.steps {
            let since = self.since(key, steps)?;
            let mut rest = since.iter();
            let is_within = steps.iter().all(|step| rest.any(|other| other == step));
            ensure!(is_within, "{key}: {steps:?} is not within {since:?}");
        }
        Ok(())
    }

    /// What was done to an object from the first that a client knows of it.
    fn since(&self, key: &str, given: &[Step]) -> Result<&[Step]> {
        let all = self.steps.get(key).with_context(|| format!("{key} never was"))?;
        let first = all.iter().position(|step| Some(step) == given.first());
        Ok(&all[first.with_context(|| format!("{key} began with {:?}, which never was", given.first()))?..])
    }
}

fn text(object: &Value, name: &str) -> String {
    object["metadata"][name].as_str().unwrap_or_default().to_owned()
}

impl<'a> Given<'a> {
    pub(super) fn of(events: &'a [EventLine]) -> Self {
        let mut given = BTreeMap::<&str, Vec<Step>>::new();
        for event in events {
            let version = (event.change != Change::Deleted).then(|| event.rv.clone());
            let step = Step { uid: event.uid.clone(), version };
            let steps = given.entry(&event.key).or_default();
            if steps.last() != Some(&step) {
                steps.push(step);
            }
        }
        Self { steps: given }
    }

    /// How many changes.
    pub(super) fn len(&self) -> usize {
        self.steps.values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(change: Change, uid: &str, rv: &str) -> EventLine {
        EventLine {
            key: "default/a".into(),
            uid: uid.into(),
            rv: rv.into(),
            change,
            initial: false,
            old: None,
        }
    }

    /// Written, written, deleted, created anew.
    async fn truth() -> (Truth, Vec<EventLine>) {
        let server = TestServer::builder().start().await.unwrap();
        let mut truth = Truth::new(server, fastrand::Rng::with_seed(1));
        let step =
            |uid: &str, version: Option<&str>| Step { uid: uid.into(), version: version.map(Into::into) };
        let steps = vec![step("1", Some("1")), step("1", Some("2")), step("1", None), step("2", Some("4"))];
        truth.steps.insert("default/a".into(), steps);
        let events = vec![
            event(Change::Added, "1", "1"),
            event(Change::Updated, "1", "2"),
            event(Change::Deleted, "1", "3"),
            event(Change::Added, "2", "4"),
        ];
        (truth, events)
    }

    #[tokio::test]
    async fn separates_lost_from_invented_or_reordered_changes() {
        let (truth, events) = truth().await;
        let is = |events: &[EventLine]| truth.is(&Given::of(events)).is_ok();
        let includes = |events: &[EventLine]| truth.includes(&Given::of(events)).is_ok();
        assert!(is(&events) && includes(&events));
        // A client that began later, and one that listed again.
        assert!(is(&events[1..]));
        assert!(is(&[&events[..2], &events[1..]].concat()));
        // One that lost something in between.
        let lost = [events[0].clone(), events[3].clone()];
        assert!(!is(&lost) && includes(&lost));
        assert!(!is(&[]) && includes(&[]));
        for wrong in [
            vec![events[1].clone(), events[0].clone()],
            vec![events[0].clone(), event(Change::Updated, "1", "9")],
            vec![event(Change::Added, "9", "1")],
            vec![events[0].clone(), events[3].clone(), events[2].clone()],
        ] {
            assert!(!is(&wrong) && !includes(&wrong), "{wrong:?}");
        }
        truth.server().stop().await;
    }
}
