//! Fields of Kubernetes' built-in kinds: numbers, types, and names in JSON. They come from a table that `peers/protobuf`
//! writes of the published Go types.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The table. Its first lines name the versions of the Go modules.
const TABLE: &str = include_str!("schema.txt");

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::read(TABLE));

/// A built-in kind: its `apiVersion` and `kind`, and the message that encodes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// `apiVersion`, such as `apps/v1`; `*` for kinds that every API group has, such as `DeleteOptions`.
    pub api_version: &'static str,
    /// `kind`, such as `Deployment`.
    pub kind: &'static str,
    pub(crate) message: MessageId,
}

/// `kind` and `apiVersion`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypeMeta<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
}

/// The number of a message in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageId(u16);

/// A message: the encoding of a Go struct.
#[derive(Debug)]
pub(crate) struct MessageType {
    pub(crate) name: &'static str,
    /// The members of its JSON, in their order: its own, and those of messages that JSON flattens into it.
    pub(crate) members: Vec<Field>,
    /// The fields of its encoding, in the order of the numbers.
    pub(crate) encoded: Vec<Encoded>,
    by_number: Vec<Option<FieldPlace>>,
    /// By member, a bit for each that the JSON may have without content.
    pub(crate) shown: u128,
}

/// A field of a message, which is a member of its JSON.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    number: u32,
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) r#type: Type,
    pub(crate) empty: Empty,
}

/// A field by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded {
    pub(crate) number: u32,
    pub(crate) place: FieldPlace,
}

/// The place of a field in the JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldPlace {
    /// The member at this index.
    Member(u16),
    /// A message whose members are among those of this one, from this index on.
    Inline(MessageId, u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A Go value, which is always there.
    Value,
    /// A Go pointer, which may be nil.
    Pointer,
    List,
    /// A map with strings as keys.
    Map,
    /// A struct whose members JSON flattens into those of the message.
    Inline,
}

/// The JSON of a field without content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Empty {
    /// `null`, `0`, `""`, `false` or an empty struct.
    Written,
    /// Nothing, except an empty struct (`omitempty`).
    Omitted,
    /// Nothing (`omitzero`).
    ZeroOmitted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    Message(MessageId),
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// JSON text in field 1 (`RawExtension`, `FieldsV1`, `JSON`).
    Raw,
    /// Strings in field 1, which JSON has as an array (`Verbs`, `ExtraValue`).
    Strings,
    /// A boolean, or a schema in field 2 (`JSONSchemaPropsOrBool`).
    OrBool(MessageId),
    /// One schema, or several in field 2 (`JSONSchemaPropsOrArray`).
    OrArray(MessageId),
    /// A schema, or strings in field 2 (`JSONSchemaPropsOrStringArray`).
    OrStrings(MessageId),
}

struct Schema {
    messages: Vec<MessageType>,
    /// By `apiVersion`, then by `kind`.
    kinds: HashMap<&'static str, HashMap<&'static str, Kind>>,
}

impl Kind {
    /// Returns the kind of an `apiVersion` and `kind`, if it is a built-in one that protobuf encodes.
    ///
    /// ```
    /// # use skopos_wire::protobuf::Kind;
    /// assert!(Kind::find("apps/v1", "Deployment").is_some());
    /// assert!(Kind::find("example.com/v1", "Widget").is_none());
    /// ```
    pub fn find(api_version: &str, kind: &str) -> Option<&'static Self> {
        [api_version, EVERY_GROUP].iter().find_map(|group| SCHEMA.kinds.get(*group)?.get(kind))
    }

    /// Returns whether any kind of this `apiVersion` is a built-in one.
    pub fn has_api_version(api_version: &str) -> bool {
        SCHEMA.kinds.contains_key(api_version)
    }

    /// Returns the kind of the items, if this is a list whose items have one.
    pub(crate) fn item(&self) -> Option<&'static Self> {
        let kind = Self::find(self.api_version, self.kind.strip_suffix("List")?)?;
        (Some(kind.message) == self.items()).then_some(kind)
    }

    /// Returns the `kind` and `apiVersion` of the JSON.
    pub(crate) fn types(&self) -> TypeMeta<'static> {
        TypeMeta { api_version: self.api_version, kind: self.kind }
    }

    /// Returns the message of the items, if this is a list.
    pub(crate) fn items(&self) -> Option<MessageId> {
        let message = self.message.get();
        // Of `meta.k8s.io/v1beta1` metadata and items have each other's number.
        let Some(FieldPlace::Member(at)) = message.field(2) else { return None };
        let items = message.members.get(usize::from(at)).filter(|field| field.name == "items")?;
        match (items.shape, items.r#type) {
            (Shape::List, Type::Message(message)) => Some(message),
            _ => None,
        }
    }
}

/// The `apiVersion` of kinds that every API group has.
const EVERY_GROUP: &str = "*";

impl MessageId {
    #[inline]
    pub(crate) fn get(self) -> &'static MessageType {
        static NONE: LazyLock<MessageType> = LazyLock::new(|| MessageType::new("unknown", &[], &[]));
        SCHEMA.messages.get(usize::from(self.0)).unwrap_or(&NONE)
    }
}

impl Field {
    /// Returns whether the field may come several times.
    #[inline]
    pub(crate) fn is_repeated(&self) -> bool {
        matches!(self.shape, Shape::List | Shape::Map)
    }

    /// Returns whether the JSON certainly lacks the member if the bytes do.
    fn is_omitted_if_absent(&self) -> bool {
        let is_scalar = matches!(
            self.r#type,
            Type::String | Type::Bool | Type::Int32 | Type::Int64 | Type::Double | Type::Bytes
        );
        let is_optional = matches!(self.shape, Shape::List | Shape::Map | Shape::Pointer);
        self.empty != Empty::Written && (is_optional || (self.shape == Shape::Value && is_scalar))
    }
}

impl MessageType {
    fn new(name: &'static str, fields: &[Field], all: &[(&'static str, Vec<Field>)]) -> Self {
        let mut message =
            Self { name, members: Vec::new(), encoded: Vec::new(), by_number: Vec::new(), shown: 0 };
        for field in fields {
            let at = u16::try_from(message.members.len()).unwrap_or(u16::MAX);
            let place = match (field.shape, field.r#type) {
                (Shape::Inline, Type::Message(inner)) => {
                    flatten(inner, all, &mut message.members);
                    FieldPlace::Inline(inner, at)
                }
                _ => {
                    message.members.push(field.clone());
                    FieldPlace::Member(at)
                }
            };
            message.encoded.push(Encoded { number: field.number, place });
        }
        message.encoded.sort_by_key(|field| field.number);
        for Encoded { number, place } in &message.encoded {
            let number = *number as usize;
            message.by_number.resize(message.by_number.len().max(number + 1), None);
            message.by_number[number] = Some(*place);
        }
        for (at, _) in message.members.iter().enumerate().filter(|(_, field)| !field.is_omitted_if_absent()) {
            message.shown |= 1 << at;
        }
        message
    }

    /// Returns the index of the first member from `at` on that the JSON may have without content.
    #[inline]
    pub(crate) fn next_shown(&self, at: usize) -> usize {
        match u32::try_from(at).ok().and_then(|at| self.shown.checked_shr(at)) {
            None | Some(0) => self.members.len(),
            Some(shown) => at + shown.trailing_zeros() as usize,
        }
    }

    /// Returns the place of the field with this number; `None` if the table does not know it.
    #[inline]
    pub(crate) fn field(&self, number: u32) -> Option<FieldPlace> {
        self.by_number.get(number as usize).copied().flatten()
    }
}

/// Adds the members of a message that JSON has in place of it.
fn flatten(message: MessageId, all: &[(&'static str, Vec<Field>)], members: &mut Vec<Field>) {
    let Some((_, fields)) = all.get(usize::from(message.0)) else { return };
    for field in fields {
        match (field.shape, field.r#type) {
            (Shape::Inline, Type::Message(inner)) => flatten(inner, all, members),
            _ => members.push(field.clone()),
        }
    }
}

impl Schema {
    fn read(table: &'static str) -> Self {
        let lines = || table.lines().map(|line| line.split(' ').collect::<Vec<&'static str>>());
        let names = lines().filter(|words| words[0] == "message").filter_map(|words| words.get(1).copied());
        let numbers: HashMap<&str, MessageId> =
            (0u16..).zip(names).map(|(number, name)| (name, MessageId(number))).collect();
        let mut kinds = HashMap::<_, HashMap<_, _>>::new();
        let mut messages: Vec<(&'static str, Vec<Field>)> = Vec::new();
        for words in lines() {
            match words.as_slice() {
                // `kind` and `apiVersion`, which protobuf has outside of the message.
                ["#", ..] | [""] | ["0", "-", "TypeMeta", ..] => {}
                ["kind", api_version, kind, message] => {
                    if let Some(&message) = numbers.get(message) {
                        let of_group = kinds.entry(*api_version).or_default();
                        of_group.insert(*kind, Kind { api_version, kind, message });
                    }
                }
                ["message", name] => messages.push((name, Vec::new())),
                [number, name, r#type, flags @ ..] => {
                    let field = Field::read(number, name, r#type, flags, &numbers);
                    if let (Some((_, fields)), Some(field)) = (messages.last_mut(), field) {
                        fields.push(field);
                    }
                }
                _ => {}
            }
        }
        let messages =
            messages.iter().map(|(name, fields)| MessageType::new(name, fields, &messages)).collect();
        Self { messages, kinds }
    }
}

impl Field {
    fn read(
        number: &str,
        name: &'static str,
        r#type: &'static str,
        flags: &[&str],
        messages: &HashMap<&str, MessageId>,
    ) -> Option<Self> {
        let shapes = [("*", Shape::Pointer), ("[]", Shape::List), ("{}", Shape::Map)];
        let shaped = shapes.iter().find_map(|(mark, shape)| Some((*shape, r#type.strip_prefix(mark)?)));
        let (shape, r#type) = shaped.unwrap_or((Shape::Value, r#type));
        Some(Self {
            number: number.parse().ok()?,
            name,
            shape: if flags.contains(&"<") { Shape::Inline } else { shape },
            r#type: Type::read(r#type, messages)?,
            empty: match () {
                () if flags.contains(&"!") => Empty::ZeroOmitted,
                () if flags.contains(&"?") => Empty::Omitted,
                () => Empty::Written,
            },
        })
    }
}

impl Type {
    fn read(name: &str, messages: &HashMap<&str, MessageId>) -> Option<Self> {
        let message = messages.get(name).copied();
        Some(match name.rsplit('.').next()? {
            "string" => Self::String,
            "bool" => Self::Bool,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "double" => Self::Double,
            "bytes" => Self::Bytes,
            "Time" => Self::Time,
            "MicroTime" => Self::MicroTime,
            "Duration" => Self::Duration,
            "Quantity" => Self::Quantity,
            "IntOrString" => Self::IntOrString,
            "RawExtension" | "FieldsV1" | "JSON" => Self::Raw,
            "Strings" => Self::Strings,
            "JSONSchemaPropsOrBool" => Self::OrBool(message?),
            "JSONSchemaPropsOrArray" => Self::OrArray(message?),
            "JSONSchemaPropsOrStringArray" => Self::OrStrings(message?),
            _ => Self::Message(message?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_line_of_table() {
        let lines = TABLE.lines().filter(|line| !line.starts_with(['#', '0']) && !line.is_empty());
        let fields: usize = SCHEMA.messages.iter().map(|message| message.encoded.len()).sum();
        let kinds: usize = SCHEMA.kinds.values().map(HashMap::len).sum();
        assert_eq!(kinds + SCHEMA.messages.len() + fields, lines.count());
        assert!(kinds > 300, "{kinds}");
    }

    #[test]
    fn has_bit_for_each_member_and_omits_only_times_that_are_zero() {
        for message in &SCHEMA.messages {
            assert!(message.members.len() <= 128, "{}", message.name);
            let is_message = |field: &&Field| matches!(field.r#type, Type::Message(_));
            let omitted = message.members.iter().filter(|field| field.empty == Empty::ZeroOmitted);
            assert_eq!(omitted.filter(is_message).count(), 0, "{}", message.name);
        }
    }

    #[test]
    fn finds_members_by_number() {
        let pod = Kind::find("v1", "Pod").unwrap().message.get();
        assert_eq!(pod.name, "core/v1.Pod");
        let name = |number| match pod.field(number) {
            Some(FieldPlace::Member(at)) => pod.members[usize::from(at)].name,
            _ => "",
        };
        assert_eq!([name(0), name(1), name(2), name(3), name(4)], ["", "metadata", "spec", "status", ""]);
    }

    #[test]
    fn flattens_inline_messages() {
        let Some(Kind { message, .. }) = Kind::find("v1", "PodList") else { unreachable!() };
        assert_eq!(message.get().members.len(), 2);
        let volume = SCHEMA.messages.iter().find(|message| message.name == "core/v1.Volume").unwrap();
        assert!(volume.encoded.len() == 2 && volume.members.len() > 20);
        assert!(matches!(volume.field(2), Some(FieldPlace::Inline(_, 1))));
    }

    #[test]
    fn knows_items_of_lists_and_options_of_every_group() {
        let items = Kind::find("v1", "PodList").unwrap().items().unwrap();
        assert_eq!(items.get().name, "core/v1.Pod");
        assert_eq!(Kind::find("v1", "Pod").unwrap().items(), None);
        assert!(Kind::find("apps/v1", "DeleteOptions").is_some());
    }
}
