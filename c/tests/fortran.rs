//! The interface of Fortran to C is what the header says: `make header` writes it into
//! `fortran/unspool.f90`, for those functions that are called there.

use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str = "  ! From here on as `make header` makes it of unspool.h.\n";
const END: &str = "  ! Until here.\n";

/// A function of the header: what it returns, its name without `unspool_`, and its arguments.
struct Function<'a> {
    result: &'a str,
    name: &'a str,
    arguments: Vec<(&'a str, &'a str)>,
}

/// A type and the name behind it, of which stars belong to the type.
fn split(declared: &str) -> (&str, &str) {
    let at = declared.rfind([' ', '*']).map_or(0, |at| at + 1);
    (declared[..at].trim(), &declared[at..])
}

fn functions(header: &str) -> Vec<Function<'_>> {
    let statements = header.split(";\n").filter_map(|statement| {
        // What stands before it are comments and lines of the preprocessor.
        let last = statement.rsplit("\n\n").next()?.trim_start();
        let lines = last.split_inclusive('\n').take_while(|line| line.starts_with(['/', '#']));
        let (front, rest) = last[lines.map(str::len).sum()..].split_once('(')?;
        let (result, name) = split(front);
        let name = name.strip_prefix("unspool_")?;
        let arguments = rest.strip_suffix(')')?.split(',').map(|one| split(one.trim()));
        Some(Function {
            result,
            name,
            arguments: arguments.filter(|(of, _)| !of.is_empty()).collect(),
        })
    });
    statements.collect()
}

/// How Fortran declares an argument of this type and name; several names are lists.
fn declared(of: &str, name: &str) -> (&'static str, String) {
    let list = || format!("{name}(*)");
    match of {
        "int64_t" => ("integer(c_int64_t), value", name.to_owned()),
        "uint32_t" => ("integer(c_int32_t), value", name.to_owned()),
        "size_t" => ("integer(c_size_t), value", name.to_owned()),
        "int" => ("integer(c_int), value", name.to_owned()),
        "double" => ("real(c_double), value", name.to_owned()),
        "const char *" => ("character(kind=c_char), intent(in)", list()),
        "char *" => ("character(kind=c_char), intent(out)", list()),
        "const int64_t *" => ("integer(c_int64_t), intent(in)", list()),
        "int64_t *" if name == "versions" => ("integer(c_int64_t), intent(out)", list()),
        // A step that is asked for comes in by one of them.
        "int64_t *" => ("integer(c_int64_t), intent(inout)", name.to_owned()),
        "uint32_t *" => ("integer(c_int32_t), intent(out)", name.to_owned()),
        "size_t *" => ("integer(c_size_t), intent(out)", name.to_owned()),
        "int *" => ("integer(c_int), intent(out)", name.to_owned()),
        "double *" => ("real(c_double), intent(out)", name.to_owned()),
        "const struct unspool_array *" => ("type(c_array), intent(in)", list()),
        "struct unspool_action *" => ("type(unspool_action), intent(out)", name.to_owned()),
        of if of.ends_with("**") => ("type(c_ptr), intent(out)", name.to_owned()),
        "void *" => ("type(c_ptr), value", name.to_owned()),
        of if of.contains("struct ") => ("type(c_ptr), value", name.to_owned()),
        of => panic!("{name} is a {of}, for which Fortran has no type here"),
    }
}

fn interface(function: &Function<'_>) -> String {
    let kind = match function.result {
        "void" => "subroutine",
        "int" => "integer(c_int) function",
        "const char *" => "type(c_ptr) function",
        of => panic!("{} returns a {of}, for which Fortran has no type here", function.name),
    };
    let names: Vec<&str> = function.arguments.iter().map(|(_, name)| *name).collect();
    let name = function.name;
    let front = format!("    {kind} c_{name}({})", names.join(", "));
    let bound = format!("bind(c, name=\"unspool_{name}\")");
    let gap = if front.len() + bound.len() < 100 { " " } else { " &\n      " };
    let mut text = format!("{front}{gap}{bound}\n      import\n");
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for (of, name) in &function.arguments {
        let (declaration, name) = declared(of, name);
        match groups.iter_mut().find(|(group, _)| *group == declaration) {
            Some((_, names)) => names.push(name),
            None => groups.push((declaration, vec![name])),
        }
    }
    for (declaration, names) in groups {
        let _ = writeln!(text, "      {declaration} :: {}", names.join(", "));
    }
    text + "    end " + kind.rsplit(' ').next().unwrap_or(kind) + "\n"
}

#[test]
fn the_interface_of_fortran_is_what_the_header_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("fortran/unspool.f90");
    let header = std::fs::read_to_string(root.join("include/unspool.h")).unwrap();
    let module = std::fs::read_to_string(&path).unwrap();
    let (front, rest) = module.split_once(BEGIN).unwrap();
    let (committed, back) = rest.split_once(END).unwrap();
    let is_called = |function: &&Function<'_>| back.contains(&format!("c_{}(", function.name));
    let all = functions(&header);
    let called: Vec<_> = all.iter().filter(is_called).collect();
    assert!(called.len() > 25, "only {} functions were found", called.len());
    let inner: String = called.into_iter().map(interface).collect();
    let made = format!("  interface\n{inner}  end interface\n");
    if std::env::var_os("UNSPOOL_WRITE_HEADER").is_some() {
        std::fs::write(&path, [front, BEGIN, &made, END, back].concat()).unwrap();
    } else {
        assert!(committed == made, "unspool.f90 is not what unspool.h says: run `make header`");
    }
}
