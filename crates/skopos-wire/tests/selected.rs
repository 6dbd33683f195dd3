//! Types that selectors accept, and the accessors of selectors. Their meaning is tested by the vectors.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::json;
use skopos_wire::{
    FieldSelector, FieldSource, LabelOperator, LabelRequirement, LabelSelector, LabelSource, Limits,
    RawObject, label_problems,
};

#[test]
fn labels_are_selected_alike_in_any_source() {
    let pairs = [("app", "web"), ("empty", "")];
    let tree = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "1", "labels": BTreeMap::from(pairs)}});
    let object = RawObject::from_value(&tree, &Limits::default()).unwrap();
    let sources: [(&str, &dyn LabelSource); 6] = [
        ("object", &object),
        ("shared object", &Arc::new(object.clone())),
        ("tree", &tree),
        ("ordered map", &BTreeMap::from(pairs)),
        ("hash map", &HashMap::from(pairs)),
        ("pairs", &Pairs(&pairs)),
    ];
    let one = LabelSelector::parse("app=web,empty=,!none").unwrap();
    let other = LabelSelector::parse("app!=web").unwrap();
    for (name, source) in sources {
        assert!(one.matches(source), "{name}");
        assert!(!other.matches(source), "{name}");
    }
}

/// A slice as a sized type.
struct Pairs<'a>(&'a [(&'a str, &'a str)]);

impl LabelSource for Pairs<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.label(key)
    }
}

#[test]
fn fields_are_selected_alike_in_any_source() {
    let tree =
        json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}, "spec": {"nodeName": "n1"}});
    let object = RawObject::from_value(&tree, &Limits::default()).unwrap();
    let sources: [(&str, &dyn FieldSource); 4] = [
        ("object", &object),
        ("shared object", &Arc::new(object.clone())),
        ("tree", &tree),
        ("ordered map", &BTreeMap::from([("metadata.name", "a"), ("spec.nodeName", "n1")])),
    ];
    let one = FieldSelector::parse("metadata.name=a,spec.nodeName=n1,spec.none=").unwrap();
    let other = FieldSelector::parse("spec.nodeName!=n1").unwrap();
    for (name, source) in sources {
        assert!(one.matches(source), "{name}");
        assert!(!other.matches(source), "{name}");
        assert_eq!(source.field("spec.none"), None, "{name}");
    }
}

#[test]
fn selector_exposes_its_requirements() {
    let labels = LabelSelector::parse("tier in (front,back,back),!legacy").unwrap();
    let told: Vec<_> = labels
        .requirements()
        .iter()
        .map(|requirement| {
            (requirement.key(), requirement.operator(), requirement.values().collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(
        told,
        [("legacy", LabelOperator::DoesNotExist, vec![]), ("tier", LabelOperator::In, vec!["back", "front"])]
    );
    let fields = FieldSelector::parse("spec.nodeName=n1,status.phase!=Running").unwrap();
    let told = fields.requirements().iter().map(|one| (one.field(), one.is_equal(), one.value()));
    assert_eq!(told.collect::<Vec<_>>(), [("spec.nodeName", true, "n1"), ("status.phase", false, "Running")]);
    assert_eq!(fields.exact("spec.nodeName"), Some("n1"));
    assert_eq!(fields.exact("status.phase"), None, "another value is no demand for one");
    assert!(!labels.is_empty() && !fields.is_empty());
    assert!(LabelSelector::parse("").unwrap().is_empty() && FieldSelector::parse(",=").unwrap().is_empty());
    let error = LabelSelector::parse("=").unwrap_err();
    assert_eq!(error.message(), error.to_string());
}

#[test]
fn selector_is_built_from_text_or_requirements() {
    let labels = LabelSelector::parse("app=web,!legacy").unwrap();
    assert_eq!("app=web,!legacy".parse(), Ok(labels.clone()));
    assert_eq!(labels.requirements().iter().cloned().collect::<LabelSelector>(), labels);
    let fields = FieldSelector::parse("spec.nodeName=n1,status.phase!=Running").unwrap();
    assert_eq!("spec.nodeName=n1,status.phase!=Running".parse(), Ok(fields.clone()));
    assert_eq!(fields.requirements().iter().cloned().collect::<FieldSelector>(), fields);
}

#[test]
fn operators_check_number_of_values() {
    use LabelOperator::*;
    let any = "for 'in', 'notin' operators, values set can't be empty";
    let one = "exact-match compatibility requires one single value";
    let none = "values set must be empty for exists and does not exist";
    let number = "for 'Gt', 'Lt' operators, exactly one value is required";
    // The errors for no value, one and two.
    let cases = [
        ([In, NotIn].as_slice(), [Some(any), None, None]),
        (&[Equals, DoubleEquals, NotEquals], [Some(one), None, Some(one)]),
        (&[Exists, DoesNotExist], [None, Some(none), Some(none)]),
        (&[GreaterThan, LessThan], [Some(number), None, Some(number)]),
    ];
    for (operators, problems) in cases {
        for (operator, (values, problem)) in operators
            .iter()
            .flat_map(|operator| ["", "1", "1 2"].into_iter().zip(problems).map(move |case| (operator, case)))
        {
            let requirement = LabelRequirement::new("a", *operator, values.split_whitespace());
            let shown: Vec<String> = values.split_whitespace().map(|value| format!("{value:?}")).collect();
            let expected = problem
                .map(|problem| format!("values: Invalid value: []string{{{}}}: {problem}", shown.join(", ")));
            assert_eq!(
                requirement.err().map(|error| error.to_string()),
                expected,
                "{operator:?} of {values:?}"
            );
        }
    }
}

#[test]
fn numeric_operators_exclude_equality() {
    let selects =
        |text: &str, rev: &str| LabelSelector::parse(text).unwrap().matches(&BTreeMap::from([("rev", rev)]));
    for (rev, greater, less) in [("6", false, true), ("7", false, false), ("8", true, false)] {
        assert_eq!((selects("rev>7", rev), selects("rev<7", rev)), (greater, less), "{rev}");
    }
}

#[test]
fn label_problems_describe_invalid_labels() {
    for (key, value) in [("app", "web"), ("example.com/app", ""), ("my-team.io/app", ""), ("a-b_c.d", "A")] {
        assert!(label_problems(key, value).is_empty(), "{key}={value}");
    }
    for prefix in ["my_team.io", "-team.io", "my..io", "Team.io"] {
        let told = label_problems(&format!("{prefix}/app"), "");
        assert!(told.len() == 1 && told[0].contains("RFC 1123 subdomain"), "{prefix}: {told:?}");
    }
    let told = label_problems("/a", "-");
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0], r#""/a": prefix part must be non-empty"#);
    assert!(told[1].starts_with(r#""-": a valid label must be an empty string or consist of "#), "{told:?}");
}
