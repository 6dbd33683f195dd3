use http::Uri;
use percent_encoding::percent_decode_str;
use proptest::prelude::*;

use super::body::ItemBody;
use super::name::Origin;
use super::url_template::UrlTemplate;

/// Generates values of an attacker who wants to reach another path, and any other text.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("..".to_owned()),
        Just(".".to_owned()),
        Just("/".to_owned()),
        Just("\\".to_owned()),
        Just("%2e".to_owned()),
        Just("%2F".to_owned()),
        Just("%25".to_owned()),
        Just("?".to_owned()),
        Just("#".to_owned()),
        Just("@evil.test".to_owned()),
        Just("https://cmdb.test".to_owned()),
        Just("\r\n".to_owned()),
        Just("{x}".to_owned()),
        "[a-z0-9.:-]{1,6}",
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn filled_value_stays_in_segment(tree in hostile(), ip in hostile()) {
        let origin = Origin::from_uri(&Uri::from_static("https://cmdb.test")).unwrap();
        let template = UrlTemplate::parse("https://cmdb.test/nodes/{tree}/hosts/x-{ip}?by={tree}").unwrap();
        let lookup = |place: &str| Some(if place == "tree" { &tree } else { &ip }.clone());
        if let Ok(url) = template.fill(lookup) {
            let name = origin.item(&url).unwrap();
            let (path, query) = name.split_once('?').unwrap();
            let segments: Vec<_> = path.split('/').map(decoded).collect();
            prop_assert_eq!(segments, ["", "nodes", &tree, "hosts", &format!("x-{ip}")]);
            prop_assert_eq!(decoded(query), format!("by={tree}"));
        } else {
            let is_bad = |value: &str| {
                value.is_empty()
                    || value.chars().any(char::is_control)
                    || value.split(['/', '\\']).any(|part| part == "." || part == "..")
            };
            // With the prefix `x-` a first part of dots is harmless.
            prop_assert!(is_bad(&tree) || is_bad(&ip), "{tree:?} {ip:?}");
        }
    }

    #[test]
    fn item_name_is_idempotent_and_valid_path(text in hostile(), is_path in any::<bool>()) {
        let origin = Origin::from_uri(&Uri::from_static("https://cmdb.test")).unwrap();
        let text = if is_path { format!("/{text}") } else { text };
        if let Ok(name) = origin.item(&text) {
            prop_assert_eq!(origin.item(&name).unwrap(), name.clone());
            prop_assert_eq!(origin.item(&format!("https://cmdb.test{name}")).unwrap(), name.clone());
            let uri: Uri = name.parse().unwrap();
            prop_assert_eq!(uri.path_and_query().map(|path| path.as_str()), Some(name.as_str()));
        }
    }

    #[test]
    fn body_round_trips_canonical_form(fields in prop::collection::btree_map(hostile(), hostile(), 0..4)) {
        let body = ItemBody(fields);
        prop_assert_eq!(ItemBody::parse(&body.canonical()).unwrap(), body);
    }
}
