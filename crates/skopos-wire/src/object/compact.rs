//! Compression of an object.

use std::sync::Arc;

use super::content::{Compact, Content};
use super::protobuf::{copy_fields, field, text_in};
use super::{Encoding, Inner, RawObject, Span};
use crate::dictionary::Dictionary;

impl RawObject {
    /// Returns the object with its content compressed, or unchanged if that saves nothing. Key, version, uid and labels stay
    /// readable in place; everything else expands the content on each call, which takes some microseconds.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use skopos_wire::{Dictionary, Limits, RawObject};
    ///
    /// let pod = |name: u32| {
    ///     let json = format!(r#"{{"metadata":{{"name":"web-{name}","uid":"u{name}","resourceVersion":"{name}"}},
    ///         "spec":{{"nodeName":"node-{}","containers":[{{"name":"main","image":"registry/web:1.2.3"}}]}}}}"#, name % 7);
    ///     RawObject::scan(json.into(), &Limits::default()).unwrap()
    /// };
    /// let samples: Vec<_> = (1..500).map(|name| pod(name).content()).collect();
    /// let dictionary = Arc::new(Dictionary::train(&samples)?);
    /// let compact = pod(1_000).compact(&dictionary);
    /// assert!(compact.memory_bytes() < pod(1_000).memory_bytes());
    /// assert_eq!(compact.json(), pod(1_000).json());
    /// # Ok::<(), skopos_wire::TrainingError>(())
    /// ```
    #[must_use]
    pub fn compact(&self, dictionary: &Arc<Dictionary>) -> Self {
        self.compressed(dictionary).map_or_else(|| self.clone(), Self::from)
    }

    /// Returns whether the content is compressed.
    pub fn is_compact(&self) -> bool {
        matches!(self.0.content, Content::Compact(_))
    }

    fn compressed(&self, dictionary: &Arc<Dictionary>) -> Option<Inner> {
        let content = self.0.content.plain()?;
        let head = Head::read(self)?;
        let compact = Compact::new(content, head.bytes, dictionary)?;
        Some(Inner { content: Content::Compact(compact), ..head.positions })
    }
}

/// The metadata that stays readable, and the positions in it.
struct Head {
    bytes: Vec<u8>,
    positions: Inner,
}

impl Head {
    /// Copies the metadata out of an object.
    fn read(object: &RawObject) -> Option<Self> {
        let mut head = Self { bytes: Vec::new(), positions: Inner::clone(&object.0) };
        match object.0.encoding() {
            Encoding::Json => {
                let own = &object.0;
                head.positions.metadata = Span::default();
                for (position, span) in [
                    (&mut head.positions.uid, own.uid),
                    (&mut head.positions.deletion_timestamp, own.deletion_timestamp),
                    (&mut head.positions.api_version, own.api_version),
                    (&mut head.positions.kind, own.kind),
                    (&mut head.positions.labels, own.labels),
                ] {
                    let start = head.bytes.len();
                    head.bytes.extend_from_slice(object.slice(span));
                    *position = Span::new(start..head.bytes.len(), 0);
                }
            }
            Encoding::Protobuf { .. } => {
                let is_kept = |number| [field::UID, field::GENERATION, field::LABELS].contains(&number);
                copy_fields(object.slice(object.0.metadata), &mut head.bytes, is_kept)?;
                head.positions.metadata = Span::new(0..head.bytes.len(), 0);
                let uid = text_in(&head.bytes, field::UID).unwrap_or_default();
                head.positions.uid = Span::new_within(uid, &head.bytes);
            }
        }
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Limits, protobuf};

    fn pod(number: usize) -> Value {
        json!({"kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": format!("web-{number}"), "namespace": "shop", "uid": format!("uid-{number}"),
                "resourceVersion": number.to_string(), "generation": 3, "deletionTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"app": "web", "zone": format!("z{}", number % 3)},
                "annotations": {"note": format!("n{number}"), "escaped\\\"": "x"}},
            "spec": {"nodeName": format!("node-{}", number % 7),
                "containers": [{"name": "main", "image": "registry.example/shop/web:1.2.3"}]},
            "status": {"phase": "Running", "podIP": format!("10.0.0.{}", number % 250)}})
    }

    /// Returns a pod in JSON with types, in JSON as an item of a list, and in protobuf.
    fn forms(number: usize) -> [RawObject; 3] {
        let (full, mut item) = (pod(number), pod(number));
        for name in ["kind", "apiVersion"] {
            item.as_object_mut().unwrap().remove(name);
        }
        let bytes = [
            full.to_string().into_bytes(),
            item.to_string().into_bytes(),
            protobuf::from_json(full.to_string().as_bytes()).unwrap(),
        ];
        bytes.map(|bytes| RawObject::scan(bytes.into(), &Limits::default()).unwrap())
    }

    fn dictionary(form: usize) -> Arc<Dictionary> {
        let samples: Vec<_> = (1..200).map(|number| forms(number)[form].content()).collect();
        Arc::new(Dictionary::train(&samples).unwrap())
    }

    #[test]
    fn compact_object_reads_as_plain_one() {
        for form in 0..3 {
            let dictionary = dictionary(form);
            let plain = &forms(1_000)[form];
            let compact = plain.compact(&dictionary);
            assert!(compact.is_compact() && !plain.is_compact());
            assert!(compact.buffer().len() * 2 < plain.buffer().len(), "{form}: {}", compact.buffer().len());
            assert_eq!((compact.key(), compact.uid()), (plain.key(), plain.uid()));
            assert_eq!(compact.resource_version(), plain.resource_version());
            assert_eq!(compact.labels().collect::<Vec<_>>(), plain.labels().collect::<Vec<_>>());
            assert_eq!(compact.deletion_timestamp(), plain.deletion_timestamp());
            assert_eq!((compact.kind(), compact.api_version()), (plain.kind(), plain.api_version()));
            assert_eq!(compact.generation(), plain.generation());
            for key in ["note", "escaped\\\"", "none"] {
                assert_eq!(compact.annotation(key), plain.annotation(key), "{key}");
            }
            for path in
                ["metadata.name", "metadata.generation", "spec.nodeName", "status.phase", "status.none"]
            {
                assert_eq!(compact.field(path), plain.field(path), "{path}");
            }
            assert_eq!((compact.json(), compact.content()), (plain.json(), plain.content()));
            assert_eq!(compact.content_len(), plain.content_len());
            assert_eq!(compact.to_value(), plain.to_value());
            assert_eq!(compact.to_stored(), plain.to_stored());
            assert_eq!(compact.message(), plain.message());
            assert_eq!(compact, *plain);
            assert!(compact.is_same_content(plain) && plain.is_same_content(&compact));
            assert!(compact.compact(&dictionary) == compact);
        }
    }

    #[test]
    fn other_content_or_dictionary_is_told_apart() {
        let (dictionary, later) = (dictionary(0), {
            let samples: Vec<_> = (500..900).map(|number| forms(number)[0].content()).collect();
            Arc::new(Dictionary::train(&samples).unwrap())
        });
        let [plain, ..] = forms(1_000);
        let (one, other) = (plain.compact(&dictionary), plain.compact(&later));
        assert!(one == other && one.is_same_content(&other));
        let mut changed = pod(1_000);
        changed["spec"]["nodeName"] = json!("node-x");
        let changed = RawObject::from_value(&changed, &Limits::default()).unwrap().compact(&dictionary);
        assert!(changed != one && !changed.is_same_content(&one));
    }

    #[test]
    fn what_does_not_compress_stays_plain() {
        let object = json!({"metadata": {"name": "x", "uid": "u", "resourceVersion": "1"}, "q": "8hJ2"});
        let object = RawObject::from_value(&object, &Limits::default()).unwrap();
        assert!(!object.compact(&dictionary(2)).is_compact());
    }

    #[test]
    fn too_few_samples_make_no_dictionary() {
        assert!(Dictionary::train(&[]).is_err());
        assert!(Dictionary::train(&[forms(1)[0].content()]).is_err());
    }
}
