//! Which files of a crate name which: by `use`, or by a path in the code.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

use crate::graph::Graph;
use crate::tree::{File, Tree};

/// One graph of files for each crate, by the folder of its sources.
pub fn graphs(tree: &Tree) -> BTreeMap<String, Graph> {
    let manifests = tree.files.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml"));
    manifests
        .map(|folder| format!("{folder}/src"))
        .map(|source| (source.clone(), graph(&source, tree)))
        .collect()
}

fn graph(source: &str, tree: &Tree) -> Graph {
    let own = tree.files.iter().filter(|file| file.is(&["rs"]) && file.within(source));
    let modules: BTreeMap<Vec<String>, &File> =
        own.filter_map(|file| Some((module(source, &file.path)?, file))).collect();
    let edges = modules.iter().map(|(name, file)| {
        let paths = paths(&file.text).into_iter().filter_map(|(_, path)| absolute(name, &path));
        let files = paths.filter_map(|path| longest(&modules, path));
        let others = files.filter(|other| other.path != file.path).map(|other| other.path.clone());
        (file.path.clone(), others.collect())
    });
    edges.collect()
}

/// The path of the module in a file: nothing for the root of a crate, tests and programs.
fn module(source: &str, path: &str) -> Option<Vec<String>> {
    let below = path.strip_prefix(source)?.trim_start_matches('/').trim_end_matches(".rs");
    let mut parts: Vec<String> = below.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    let apart = |part: &String| part == "tests" || part.ends_with("_tests") || part == "bin";
    let is_root = parts.len() == 1 && ["lib", "main"].contains(&parts[0].as_str());
    (!is_root && !parts.iter().any(apart)).then_some(parts)
}

/// The path from the root of the crate, for one that begins with `crate`, `self` or `super`.
fn absolute(module: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut from = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module[..module.len() - 1].to_vec(),
        _ => return None,
    };
    for part in &path[1..] {
        if part == "super" {
            from.pop();
        } else if part != "self" {
            from.push(part.clone());
        }
    }
    Some(from)
}

/// The file of the innermost module on a path.
fn longest<'a>(
    modules: &BTreeMap<Vec<String>, &'a File>,
    mut path: Vec<String>,
) -> Option<&'a File> {
    while !path.is_empty() {
        if let Some(file) = modules.get(&path) {
            return Some(file);
        }
        path.pop();
    }
    None
}

/// A path with the line on which its last branch begins, from 1.
type Named = (usize, Vec<String>);

/// Every path of the shipped code, those of `use a::{b, c::d}` one by one; none is empty.
pub fn paths(text: &str) -> Vec<Named> {
    let mut found = Vec::new();
    if let Ok(tokens) = text.parse::<TokenStream>() {
        collect(tokens, &mut found);
    }
    found
}

fn collect(tokens: TokenStream, found: &mut Vec<Named>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                let attribute = tokens.next().map(|one| one.to_string()).unwrap_or_default();
                if attribute.replace(' ', "").starts_with("[cfg(test)]")
                    || attribute.replace(' ', "").starts_with("[cfg(all(test")
                {
                    skip_item(&mut tokens);
                }
            }
            // What `pub(super)` names is no import.
            TokenTree::Ident(word) if word == "pub" => drop(tokens.next_if(is_parenthesis)),
            TokenTree::Ident(word) if word == "mod" && is_word(&mut tokens, "tests") => {
                skip_item(&mut tokens);
            }
            TokenTree::Ident(word) => path_from(&word, &mut tokens, &[], found),
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

type Tokens = std::iter::Peekable<proc_macro2::token_stream::IntoIter>;

/// Goes past one item: to its block, or to its semicolon.
fn skip_item(tokens: &mut Tokens) {
    for token in tokens.by_ref() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            TokenTree::Punct(mark) if mark.as_char() == ';' => return,
            _ => {}
        }
    }
}

/// Reads the path that begins with `first`, below `base`, with the branches that it has.
fn path_from(first: &Ident, tokens: &mut Tokens, base: &[String], found: &mut Vec<Named>) {
    let mut path = base.to_vec();
    path.push(first.to_string());
    while is_mark(tokens, ':') {
        tokens.next();
        if !is_mark(tokens, ':') {
            break; // `name: Type`
        }
        tokens.next();
        match tokens.peek() {
            Some(TokenTree::Ident(word)) => {
                path.push(word.to_string());
                tokens.next();
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner = group.stream();
                tokens.next();
                return branches(inner, &path, found);
            }
            _ => break,
        }
    }
    found.push((first.span().start().line, path));
}

fn branches(list: TokenStream, base: &[String], found: &mut Vec<Named>) {
    let mut tokens = list.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if let TokenTree::Ident(word) = token {
            path_from(&word, &mut tokens, base, found);
        }
    }
}

fn is_parenthesis(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
}

fn is_word(tokens: &mut Tokens, word: &str) -> bool {
    matches!(tokens.peek(), Some(TokenTree::Ident(found)) if found == word)
}

fn is_mark(tokens: &mut Tokens, mark: char) -> bool {
    matches!(tokens.peek(), Some(TokenTree::Punct(found)) if found.as_char() == mark)
}
