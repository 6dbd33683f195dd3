//! Protobuf encoding of OpenAPI v2 documents (`OpenAPIv2.proto` of gnostic), the only form that kubectl reads.
//!
//! Parts that kubectl does not read, such as responses, are omitted.

use serde_json::Value;

/// Encodes a Swagger 2.0 document.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = MessageWriter::default();
    out.text(1, &document["swagger"]);
    out.message(2, |info| {
        info.text(1, &document["info"]["title"]);
        info.text(2, &document["info"]["version"]);
    });
    out.message(8, |paths| {
        for (name, path) in entries(&document["paths"]) {
            paths.named(2, name, |out| path_item(out, path));
        }
    });
    out.message(9, |definitions| named_schemas(definitions, &document["definitions"]));
    out.0
}

fn path_item(out: &mut MessageWriter, path: &Value) {
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if path[method].is_object() {
            out.message(number, |out| operation(out, &path[method]));
        }
    }
}

fn operation(out: &mut MessageWriter, operation: &Value) {
    out.text(5, &operation["operationId"]);
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        // ParametersItem, Parameter, NonBodyParameter, and in it a query parameter.
        out.message(8, |item| {
            item.message(1, |any| {
                any.message(2, |other| other.message(3, |out| query_parameter(out, parameter)))
            });
        });
    }
    // Empty responses.
    out.message(9, |_| {});
    extensions(out, 13, operation);
}

fn query_parameter(out: &mut MessageWriter, parameter: &Value) {
    out.text(2, &parameter["in"]);
    out.text(3, &parameter["description"]);
    out.text(4, &parameter["name"]);
    out.text(6, &parameter["type"]);
}

fn schema(out: &mut MessageWriter, schema_: &Value) {
    for (number, field) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")] {
        out.text(number, &schema_[field]);
    }
    for (number, field) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        out.double(number, &schema_[field]);
    }
    for (number, field) in [(8, "exclusiveMaximum"), (10, "exclusiveMinimum"), (16, "uniqueItems")] {
        out.flag(number, &schema_[field]);
    }
    for (number, field) in [
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ] {
        out.number(number, &schema_[field]);
    }
    out.any(5, &schema_["default"]);
    list(&schema_["required"]).for_each(|name| out.text(19, name));
    list(&schema_["enum"]).for_each(|value| out.any(20, value));
    match &schema_["additionalProperties"] {
        Value::Bool(yes) => out.message(21, |item| item.flag(2, &Value::Bool(*yes))),
        inner if inner.is_object() => out.message(21, |item| item.message(1, |out| schema(out, inner))),
        _ => {}
    }
    if schema_["type"].is_string() {
        out.message(22, |out| out.text(1, &schema_["type"]));
    }
    if schema_["items"].is_object() {
        out.message(23, |items| items.message(1, |out| schema(out, &schema_["items"])));
    }
    list(&schema_["allOf"]).for_each(|inner| out.message(24, |out| schema(out, inner)));
    if schema_["properties"].is_object() {
        out.message(25, |out| named_schemas(out, &schema_["properties"]));
    }
    extensions(out, 31, schema_);
}

fn named_schemas(out: &mut MessageWriter, schemas: &Value) {
    for (name, inner) in entries(schemas) {
        out.named(1, name, |out| schema(out, inner));
    }
}

fn extensions(out: &mut MessageWriter, number: u64, of: &Value) {
    for (name, value) in entries(of).filter(|(name, _)| name.starts_with("x-")) {
        out.named(number, name, |out| out.text(2, &value.to_string().into()));
    }
}

fn entries(map: &Value) -> impl Iterator<Item = (&String, &Value)> {
    map.as_object().into_iter().flatten()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Protobuf message that is being written. Absent values are omitted.
#[derive(Default)]
struct MessageWriter(Vec<u8>);

impl MessageWriter {
    fn text(&mut self, number: u64, text: &Value) {
        if let Some(text) = text.as_str().filter(|text| !text.is_empty()) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn number(&mut self, number: u64, value: &Value) {
        if let Some(value) = value.as_u64() {
            self.varint(number << 3);
            self.varint(value);
        }
    }

    fn flag(&mut self, number: u64, value: &Value) {
        if value == true {
            self.varint(number << 3);
            self.varint(1);
        }
    }

    fn double(&mut self, number: u64, value: &Value) {
        if let Some(value) = value.as_f64() {
            self.varint((number << 3) | 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Writes a value of any type, as YAML.
    fn any(&mut self, number: u64, value: &Value) {
        if !value.is_null() {
            self.message(number, |out| out.text(2, &value.to_string().into()));
        }
    }

    fn named(&mut self, number: u64, name: &str, write: impl FnOnce(&mut Self)) {
        self.message(number, |out| {
            out.bytes(1, name.as_bytes());
            out.message(2, write);
        });
    }

    fn message(&mut self, number: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(number, &inner.0);
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.varint((number << 3) | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Written by `peers/tables` from the same document.
    const RECORDED: &str = concat!(
        "0a03322e3012060a014b120131422912270a022f611221421f2a017042180a1612141a121205717565727922017132067374",
        "72696e674a004aa0010a9d010a01441297012201649a010161b201080a066f626a656374ca0181010a160a016112110a0f23",
        "2f646566696e6974696f6e732f440a220a0162121db201070a056172726179ba01100a0e58ac02b201080a06737472696e67",
        "0a260a016d1221aa01130a11120462797465b201080a06737472696e67b201080a066f626a6563740a1b0a016e1216490000",
        "00000000f83f5001b201080a066e756d626572",
    );

    #[test]
    fn document_bytes_match_gnostic() {
        let small = json!({"swagger": "2.0", "info": {"title": "K", "version": "1"},
            "paths": {"/a": {"patch": {"operationId": "p", "responses": {},
                "parameters": [{"name": "q", "in": "query", "type": "string"}]}}},
            "definitions": {"D": {"type": "object", "required": ["a"], "description": "d", "properties": {
                "a": {"$ref": "#/definitions/D"},
                "b": {"type": "array", "items": {"type": "string", "maxLength": 300}},
                "m": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}},
                "n": {"type": "number", "minimum": 1.5, "exclusiveMinimum": true}}}}});
        let hex: String = document(&small).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, RECORDED);
    }
}
