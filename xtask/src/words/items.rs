//! Documented items, types and functions of the code.

use std::collections::BTreeMap;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Lit, Meta};

use super::source::Source;

/// The items of some files, without those of tests.
#[derive(Default)]
pub(super) struct Items {
    pub(super) docs: Vec<Doc>,
    /// The places of functions `of` and `of_*`.
    pub(super) of_functions: Vec<String>,
    /// The places of each name of a type, and whether one of them is public.
    types: BTreeMap<String, (bool, Vec<String>)>,
    file: String,
    is_test: bool,
}

/// The doc of an item.
pub(super) struct Doc {
    pub(super) place: String,
    pub(super) first_line: String,
    pub(super) is_of_function: bool,
}

/// Names that each module may have one of.
const COMMON_NAMES: [&str; 5] = ["Error", "Inner", "State", "Options", "Builder"];
/// First words that say nothing about the item.
const QUESTION_WORDS: [&str; 14] = [
    "What", "Who", "How", "Which", "That", "Of", "Whose", "Whom", "Whether", "Where", "When", "Why",
    "Whatever", "Whoever",
];
/// First words that end as a verb does.
const NO_VERBS: [&str; 16] = [
    "This", "Its", "Always", "Pods", "Bytes", "Objects", "Clusters", "Names", "Keys", "As", "Is", "Has",
    "Was", "Requests", "Events", "Values",
];

impl Items {
    pub(super) fn add(&mut self, source: &Source) {
        self.file = source.file.display().to_string();
        self.is_test = source.is_test;
        self.visit_file(&source.syntax);
    }

    /// Returns each name that has more than two definitions, of which one is public, and their places.
    pub(super) fn repeated_types(&self) -> impl Iterator<Item = (&str, &[String])> {
        let is_repeated = |name: &str, is_public: bool, places: &[String]| {
            is_public && places.len() > 2 && !COMMON_NAMES.contains(&name)
        };
        let types = self
            .types
            .iter()
            .filter(move |(name, (is_public, places))| is_repeated(name, *is_public, places));
        types.map(|(name, (_, places))| (name.as_str(), places.as_slice()))
    }

    fn place(&self, item: &impl Spanned) -> String {
        format!("{}:{}", self.file, item.span().start().line)
    }

    fn doc(&mut self, attributes: &[Attribute], is_of_function: bool) {
        if let Some((attribute, first_line)) =
            attributes.iter().find_map(|attribute| Some((attribute, doc_line(attribute)?)))
        {
            let place = self.place(attribute);
            self.docs.push(Doc { place, first_line, is_of_function });
        }
    }

    fn function(&mut self, attributes: &[Attribute], name: &syn::Ident) {
        self.doc(attributes, true);
        let text = name.to_string();
        if !self.is_test && (text == "of" || text.starts_with("of_")) {
            self.of_functions.push(self.place(name));
        }
    }

    fn type_named(&mut self, attributes: &[Attribute], name: &syn::Ident, visibility: &syn::Visibility) {
        self.doc(attributes, false);
        if self.is_test {
            return;
        }
        let place = self.place(name);
        let (is_public, places) = self.types.entry(name.to_string()).or_default();
        *is_public |= matches!(visibility, syn::Visibility::Public(_));
        places.push(place);
    }
}

impl Doc {
    pub(super) fn begins_with_question_word(&self) -> bool {
        QUESTION_WORDS.contains(&self.first_word())
    }

    /// Returns whether the first word has the form of a verb of a thing, such as "Returns".
    pub(super) fn begins_with_verb(&self) -> bool {
        let word = self.first_word();
        word.ends_with('s') && !NO_VERBS.contains(&word)
    }

    fn first_word(&self) -> &str {
        let line = self.first_line.trim_start_matches(|c: char| !c.is_alphanumeric());
        line.split(|c: char| !c.is_alphanumeric() && c != '\'').next().unwrap_or_default()
    }
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item;
        match item {
            Item::Mod(module) if is_test(&module.attrs) => return,
            Item::Mod(module) => self.doc(&module.attrs, false),
            Item::Fn(function) if is_test(&function.attrs) => return,
            Item::Fn(function) => self.function(&function.attrs, &function.sig.ident),
            Item::Struct(item) => self.type_named(&item.attrs, &item.ident, &item.vis),
            Item::Enum(item) => self.type_named(&item.attrs, &item.ident, &item.vis),
            Item::Trait(item) => self.type_named(&item.attrs, &item.ident, &item.vis),
            Item::Type(item) => self.type_named(&item.attrs, &item.ident, &item.vis),
            Item::Const(item) => self.doc(&item.attrs, false),
            Item::Static(item) => self.doc(&item.attrs, false),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_file(&mut self, file: &'ast syn::File) {
        self.doc(&file.attrs, false);
        visit::visit_file(self, file);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.attrs, &function.sig.ident);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.function(&function.attrs, &function.sig.ident);
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.doc(&field.attrs, false);
        visit::visit_field(self, field);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.doc(&variant.attrs, false);
        visit::visit_variant(self, variant);
    }
}

/// Returns the text of a doc attribute's line, unless it is empty.
fn doc_line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    let Expr::Lit(literal) = &pair.value else { return None };
    let Lit::Str(text) = &literal.lit else { return None };
    let line = text.value().lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
    line.filter(|_| pair.path.is_ident("doc"))
}

pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string().contains("test"),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(code: &str) -> Items {
        let mut items = Items::default();
        items.visit_file(&syn::parse_file(code).unwrap());
        items
    }

    #[test]
    fn counts_first_words() {
        let items = items(
            "//! What it is.\n/// Returns it.\nfn a() {}\n/// `it` is there.\nfn b() {}\n/// Of them.\nstruct C { /// How many.\n d: u8 }\n\
             #[cfg(test)] mod tests { /// Who.\n fn e() {} }",
        );
        let (docs, questions) =
            (items.docs.len(), items.docs.iter().filter(|doc| doc.begins_with_question_word()).count());
        let verbs = items.docs.iter().filter(|doc| doc.is_of_function && doc.begins_with_verb()).count();
        assert_eq!((docs, questions, verbs), (5, 3, 1));
    }

    #[test]
    fn finds_repeated_types_and_of_constructors() {
        let items = items(
            "pub struct A; mod one { struct A; pub struct B; pub struct Inner; } mod two { enum A {} struct B; struct Inner; fn of() {} } \
             mod three { struct C; struct Inner; impl C { fn of_all() {} } }",
        );
        let repeated: Vec<_> = items.repeated_types().map(|(name, places)| (name, places.len())).collect();
        assert_eq!(repeated, [("A", 3)]);
        assert_eq!(items.of_functions.len(), 2);
    }
}
