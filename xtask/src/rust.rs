//! What the checks need to know about a Rust file: its functions and its words.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

/// A function with a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its signature, from 1.
    pub line: usize,
    /// Lines from the signature to the closing brace, both included.
    pub lines: usize,
}

/// The functions of a Rust file, nested ones and methods included; those that a macro writes are
/// not seen.
pub fn functions(text: &str) -> Result<Vec<Function>, syn::Error> {
    let mut found = Functions(Vec::new());
    found.visit_file(&syn::parse_file(text)?);
    Ok(found.0)
}

struct Functions(Vec<Function>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let line = signature.span().start().line;
        let lines = body.span().end().line + 1 - line;
        self.0.push(Function { name: signature.ident.to_string(), line, lines });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.add(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// Every identifier and keyword with its line, also inside macros; comments and strings are not
/// among them.
pub fn words(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    if let Ok(tokens) = text.parse::<TokenStream>() {
        collect(tokens, &mut found);
    }
    found
}

fn collect(tokens: TokenStream, found: &mut Vec<(usize, String)>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Ident(word) => found.push((word.span().start().line, word.to_string())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{functions, words};

    #[test]
    fn methods_and_nested_functions_are_measured_without_their_docs() {
        let text = "/// Doc.\n#[inline]\nfn a() {\n    fn b() {}\n}\n\
                    impl X {\n    fn c(\n    ) {\n    }\n}";
        let found = functions(text).unwrap();
        let short: Vec<(&str, usize, usize)> =
            found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(short, [("a", 3, 3), ("b", 4, 1), ("c", 7, 3)]);
    }

    #[test]
    fn a_trait_method_counts_only_with_a_body() {
        let found = functions("trait T {\n    fn a();\n    fn b() {\n    }\n}").unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].lines), ("b", 2));
    }

    #[test]
    fn words_are_found_in_macros_and_not_in_comments_or_strings() {
        let text = "// unsafe\nconst S: &str = \"unsafe\";\nm! { x(unsafe) }\n";
        let lines: Vec<usize> = words(text)
            .iter()
            .filter(|(_, word)| word == "unsafe")
            .map(|(line, _)| *line)
            .collect();
        assert_eq!(lines, [3]);
    }
}
