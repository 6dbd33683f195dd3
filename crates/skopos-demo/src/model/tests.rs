use super::*;

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn cluster(name: &str, events: u64, trouble: Option<Trouble>) -> ClusterSample {
    let lasts = trouble.as_ref().is_some_and(|trouble| trouble.healed.is_none());
    ClusterSample {
        name: name.into(),
        condition: if lasts { Condition::Degraded } else { Condition::Live },
        since: at(0),
        reason: trouble.as_ref().filter(|_| lasts).map(|trouble| trouble.what.clone()),
        synced: true,
        objects: 3,
        age: Some(at(1200)),
        events,
        troubles: trouble.into_iter().collect(),
        broken: None,
    }
}

fn sample(millis: u64, clusters: Vec<ClusterSample>) -> Sample {
    Sample { at: at(millis), expected: clusters.len(), clusters }
}

fn stands(name: &str, condition: Condition, since: u64, reason: &str) -> ClusterSample {
    let reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
    ClusterSample { condition, since: at(since), reason, ..cluster(name, 0, None) }
}

fn texts(model: &Model) -> Vec<String> {
    model.log(100).map(|entry| entry.text.clone()).collect()
}

#[test]
fn tracks_fault_from_injection_to_recovery() {
    let mut model = Model::default();
    let healthy = || cluster("lima", 0, None);
    model.observe(sample(0, vec![cluster("oslo", 0, None), healthy()]));
    model.inflict(at(1000), FaultName::Reset, "oslo");
    let trouble = Trouble { at: at(1100), what: "connection reset".into(), healed: None };
    model.observe(sample(1200, vec![cluster("oslo", 0, Some(trouble.clone())), healthy()]));
    model.observe(sample(1500, vec![cluster("oslo", 0, Some(trouble.clone())), healthy()]));
    assert!(!model.all_live());
    let healed = Trouble { healed: Some((at(1550), "watch resumed".into())), ..trouble };
    for moment in [1600, 1700] {
        model.observe(sample(moment, vec![cluster("oslo", 0, Some(healed.clone())), healthy()]));
    }
    assert!(model.all_live());
    assert_eq!(
        texts(&model),
        [
            "everything is in memory: 2 clusters, 6 objects",
            "oslo: RST: every connection is reset",
            "oslo: detected 100ms after the fault: connection reset",
            "oslo: well again 550ms after the fault: watch resumed",
        ]
    );
    assert_eq!(model.rows()[0].note, "0s ago: connection reset; after 450ms watch resumed");
}

#[test]
fn recovery_from_a_lasting_fault_counts_from_its_end() {
    let mut model = Model::default();
    model.inflict(at(0), FaultName::Restart, "oslo");
    model.fault_over(at(9000), "oslo", "it answers again");
    let healed =
        Trouble { at: at(10), what: "refused".into(), healed: Some((at(9400), "watch resumed".into())) };
    let clusters = vec![cluster("oslo", 0, Some(healed)), cluster("lima", 0, None)];
    model.observe(sample(9500, clusters.clone()));
    model.observe(sample(9900, clusters));
    let told = "oslo: well again 400ms after the fault was over: watch resumed".to_owned();
    assert!(texts(&model).contains(&told), "{:?}", texts(&model));
}

#[test]
fn only_matching_trouble_detects_fault() {
    let mut model = Model::default();
    let healthy = || cluster("lima", 0, None);
    let show = |model: &mut Model, moment: u64, trouble: &Trouble| {
        model.observe(sample(moment, vec![cluster("oslo", 0, Some(trouble.clone())), healthy()]));
    };
    model.observe(sample(0, vec![cluster("oslo", 0, None), healthy()]));
    model.inflict(at(1000), FaultName::Lag, "oslo");
    // The injection closes the connections, so that the lag begins at once.
    let closed = Trouble { at: at(1010), what: "connection closed by the server".into(), healed: None };
    show(&mut model, 1100, &closed);
    show(&mut model, 1500, &closed);
    let reopened = Trouble { healed: Some((at(1600), "watch resumed".into())), ..closed };
    show(&mut model, 1700, &reopened);
    // A fault of another cluster does not replace this one.
    model.inflict(at(5000), FaultName::Reset, "lima");
    let silent = Trouble { at: at(12_000), what: "no data arrives, and so on".into(), healed: None };
    show(&mut model, 12_100, &silent);
    show(&mut model, 12_500, &silent);
    let over = Trouble { healed: Some((at(21_000), "watch resumed".into())), ..silent };
    model.fault_over(at(20_500), "oslo", "the server has caught up");
    show(&mut model, 21_100, &over);
    let about = |text: &&String| text.starts_with("oslo: ");
    assert_eq!(
        texts(&model).iter().filter(about).skip(1).collect::<Vec<_>>(),
        [
            "oslo: connection closed by the server",
            "oslo: well again: watch resumed",
            "oslo: detected 11s after the fault: no data arrives, and so on",
            "oslo: the server has caught up",
            "oslo: well again 500ms after the fault was over: watch resumed",
        ]
    );
}

#[test]
fn fault_during_trouble_is_detected_once() {
    let mut model = Model::default();
    model.observe(sample(0, vec![cluster("oslo", 0, None), cluster("lima", 0, None)]));
    model.inflict(at(1000), FaultName::Unavailable, "oslo");
    let closed = |what: &str| Trouble { at: at(1010), what: what.into(), healed: None };
    for (moment, what) in [(1100, "closed"), (1500, "closed"), (1700, "HTTP 503"), (1900, "HTTP 503")] {
        model.observe(sample(moment, vec![cluster("oslo", 0, Some(closed(what))), cluster("lima", 0, None)]));
    }
    let told: Vec<String> = texts(&model).into_iter().filter(|text| text.contains("detected")).collect();
    assert_eq!(told, ["oslo: detected 700ms after the fault: HTTP 503"]);
}

#[test]
fn pause_is_not_trouble_and_logs_recovery_time() {
    let mut model = Model::default();
    model.observe(sample(0, vec![cluster("oslo", 0, None)]));
    // The connection dies before the pause is known.
    let lost = Trouble { at: at(1000), what: "closed".into(), healed: None };
    model.observe(sample(1100, vec![cluster("oslo", 0, Some(lost.clone()))]));
    let off = |condition, since, reason| ClusterSample {
        troubles: vec![lost.clone()],
        ..stands("oslo", condition, since, reason)
    };
    model.observe(sample(1200, vec![off(Condition::Paused, 1150, "scaled to zero")]));
    assert_eq!(model.rows()[0].note, "scaled to zero");
    model.observe(sample(60_000, vec![off(Condition::Paused, 1150, "scaled to zero")]));
    model.observe(sample(61_000, vec![off(Condition::Connecting, 60_500, "starting")]));
    let healed = Trouble { healed: Some((at(61_700), "watch resumed".into())), ..lost };
    let back =
        || ClusterSample { troubles: vec![healed.clone()], ..stands("oslo", Condition::Live, 61_700, "") };
    model.observe(sample(62_000, vec![back()]));
    model.observe(sample(63_000, vec![back()]));
    assert_eq!(
        texts(&model)[1..],
        ["oslo: paused: scaled to zero", "oslo: live again 1.2s after it was switched on"]
    );
}

#[test]
fn same_trouble_of_many_clusters_is_one_line() {
    let mut model = Model::default();
    let healthy = || cluster("tokyo", 0, None);
    model.observe(sample(0, vec![cluster("oslo", 0, None), cluster("lima", 0, None), healthy()]));
    let stalled = |millis: u64, rv: u64| Trouble {
        at: at(millis),
        what: format!("stalled: it never brought {rv}"),
        healed: None,
    };
    let one = || cluster("oslo", 0, Some(stalled(90, 7)));
    model.observe(sample(100, vec![one(), cluster("lima", 0, None), healthy()]));
    for moment in [200, 400, 500] {
        model.observe(sample(moment, vec![one(), cluster("lima", 0, Some(stalled(190, 9))), healthy()]));
    }
    assert_eq!(texts(&model)[1..], ["oslo, lima: stalled".to_owned()]);
}

#[test]
fn troubles_of_resources_merge_per_cluster() {
    let mut model = Model::default();
    model.observe(sample(0, vec![cluster("oslo", 0, None)]));
    let kind = |began: u64, healed: Option<u64>| Trouble {
        at: at(began),
        what: "closed".into(),
        healed: healed.map(|moment| (at(moment), "watch resumed".into())),
    };
    let with = |troubles| vec![ClusterSample { troubles, ..cluster("oslo", 0, None) }];
    model.observe(sample(100, with(vec![kind(90, None), kind(95, None)])));
    model.observe(sample(500, with(vec![kind(90, Some(400)), kind(95, None)])));
    model.observe(sample(900, with(vec![kind(90, Some(400)), kind(95, Some(800))])));
    model.observe(sample(1300, with(vec![kind(90, Some(400)), kind(95, Some(800))])));
    assert_eq!(texts(&model)[1..], ["oslo: closed", "oslo: well again: watch resumed"]);
}

#[test]
fn trouble_between_two_samples_is_not_missed() {
    let mut model = Model::default();
    model.observe(sample(0, vec![cluster("oslo", 0, None)]));
    let over =
        Trouble { at: at(100), what: "closed".into(), healed: Some((at(140), "watch resumed".into())) };
    model.observe(sample(250, vec![cluster("oslo", 0, Some(over.clone()))]));
    model.observe(sample(650, vec![cluster("oslo", 0, Some(over))]));
    assert_eq!(texts(&model)[1..], ["oslo: closed", "oslo: well again: watch resumed"]);
}

#[test]
fn rows_tell_state_rate_and_why() {
    let mut model = Model::default();
    model.observe(sample(0, vec![cluster("oslo", 0, None)]));
    let trouble = Trouble { at: at(1000), what: "refused".into(), healed: None };
    model.observe(sample(4000, vec![cluster("oslo", 100, Some(trouble))]));
    let rows = model.rows();
    assert_eq!(rows[0].cells, ["oslo", "degraded", "4s", "1.2s", "3", "25.0"].map(String::from));
    assert_eq!((rows[0].note.as_str(), rows[0].mood), ("refused", Mood::Bad));
    assert_eq!(model.summary(), "0 of 1 cluster live, 3 objects, 25 events/s");
    assert_eq!(model.missing(), "oslo is degraded (refused)");
}

#[test]
fn rate_forgets_old_events() {
    let mut model = Model::default();
    for second in 0..60 {
        let events = if second < 30 { second * 100 } else { 3000 };
        model.observe(sample(second * 1000, vec![cluster("oslo", events, None)]));
    }
    assert_eq!(model.rows()[0].cells[5], "0.0");
}

#[test]
fn late_cluster_is_logged() {
    let mut model = Model::default();
    model.observe(sample(0, vec![cluster("oslo", 0, None)]));
    let late = stands("lima", Condition::Connecting, 900, "");
    model.observe(sample(1000, vec![cluster("oslo", 0, None), late]));
    assert_eq!(texts(&model)[1..], ["lima: found"]);
}

#[test]
fn clusters_that_are_not_found_yet_are_missing() {
    let mut model = Model::default();
    model.observe(Sample { expected: 2, ..sample(0, vec![cluster("oslo", 0, None)]) });
    assert!(!model.all_live() && texts(&model).is_empty());
    assert_eq!(model.missing(), "1 cluster not found yet");
}

#[test]
fn log_is_bounded_and_resumes_from_count() {
    let mut model = Model::default();
    let (_, count) = model.log_since(0);
    for i in 0..2 * LOG_LENGTH {
        model.note(at(i as u64), format!("{i}"), Mood::Good);
    }
    let (entries, count) = model.log_since(count);
    assert_eq!(entries.len(), LOG_LENGTH);
    model.note(at(0), "last", Mood::Good);
    let (entries, _) = model.log_since(count);
    assert_eq!(entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>(), ["last"]);
}
