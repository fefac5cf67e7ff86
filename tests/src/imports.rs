//! Reads the imports of the project's own crates from their sources: no two files import each other, directly or through
//! others.

use crate::sources::rust_files;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

/// A module's path from the crate's root; empty for the root itself.
type Module = Vec<String>;

/// The text of a crate's source files, by module.
struct Crate {
    files: BTreeMap<Module, String>,
}

impl Crate {
    /// Reads the files below a crate's source folder. Files of tests are left out.
    fn of(source: &str) -> Crate {
        let files = rust_files(source).into_iter().filter_map(|(path, text)| {
            let inside = path.strip_prefix(source).expect("a path in the folder");
            let mut module: Module = inside
                .with_extension("")
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            let stem = module.last().expect("a file's name").clone();
            if matches!(stem.as_str(), "mod" | "lib" | "main") {
                module.pop();
            }
            (!stem.ends_with("tests")).then_some((module, text))
        });
        Crate {
            files: files.collect(),
        }
    }

    /// Returns the module that a path from the crate's root leads to: its longest prefix that is a file.
    fn module_of(&self, path: &[String]) -> Option<Module> {
        (1..=path.len())
            .rev()
            .map(|length| path[..length].to_vec())
            .find(|module| self.files.contains_key(module))
    }

    /// Returns the modules that each module imports, except itself.
    fn imports(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let imports_of = |(module, text): (&Module, &String)| {
            let parsed = syn::parse_file(text).expect("a source file is Rust");
            let mut found = Paths {
                module,
                aliases: BTreeMap::new(),
                paths: Vec::new(),
            };
            found.visit_file(&parsed);
            let imported = found
                .resolved()
                .into_iter()
                .filter_map(|path| self.module_of(&path))
                .filter(|it| it != module);
            (module.clone(), imported.collect())
        };
        self.files.iter().map(imports_of).collect()
    }
}

/// The paths that a file names, except those in test-only code.
struct Paths<'a> {
    module: &'a Module,
    /// The short names that `use` defines.
    aliases: BTreeMap<String, Vec<String>>,
    /// The paths as written.
    paths: Vec<Vec<String>>,
}

impl Paths<'_> {
    /// Returns the paths within the crate, from its root.
    fn resolved(&self) -> BTreeSet<Vec<String>> {
        let uses = self.aliases.values().cloned();
        uses.chain(self.paths.iter().filter_map(|path| self.absolute(path)))
            .collect()
    }

    /// Returns a path from the crate's root; `None` if it leads out of the crate.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([self.module.as_slice(), rest].concat()),
            "super" => {
                let above = rest.iter().take_while(|name| *name == "super").count();
                let parent = self.module.len().checked_sub(above + 1)?;
                Some([&self.module[..parent], &rest[above..]].concat())
            }
            name => match self.aliases.get(name) {
                Some(alias) => Some([alias.as_slice(), rest].concat()),
                // A module declared in this file.
                None if !rest.is_empty() => Some([self.module.as_slice(), path].concat()),
                None => None,
            },
        }
    }

    fn add_use(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_use(&with(&path.ident), &path.tree),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use(before, tree)),
            syn::UseTree::Name(name) if name.ident == "self" => {
                self.add_alias(before.last().cloned(), before)
            }
            syn::UseTree::Name(name) => self.add_alias(Some(name.ident.to_string()), &with(&name.ident)),
            syn::UseTree::Rename(rename) => {
                self.add_alias(Some(rename.rename.to_string()), &with(&rename.ident))
            }
            syn::UseTree::Glob(_) => self.paths.push(before.to_vec()),
        }
    }

    fn add_alias(&mut self, name: Option<String>, path: &[String]) {
        if let (Some(name), Some(path)) = (name, self.absolute(path)) {
            self.aliases.insert(name, path);
        }
    }

    /// Adds the paths in a macro's arguments, which are only tokens.
    fn add_tokens(&mut self, tokens: proc_macro2::TokenStream) {
        use proc_macro2::TokenTree;
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.paths.push(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                // The path in `pub(super)` is no import.
                TokenTree::Group(_) if path == ["pub"] => path.clear(),
                TokenTree::Group(group) => {
                    self.paths.push(std::mem::take(&mut path));
                    self.add_tokens(group.stream());
                }
                _ => colons = 0,
            }
        }
        self.paths.push(path);
    }
}

/// Returns whether an item is compiled for tests only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|condition| condition.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_file(&mut self, file: &'ast syn::File) {
        // Aliases first: they may be used above the line that defines them.
        for item in &file.items {
            if let syn::Item::Use(item) = item
                && !is_test(&item.attrs)
            {
                self.add_use(&[], &item.tree);
            }
        }
        syn::visit::visit_file(self, file);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, _: &'ast syn::ItemUse) {}

    /// The path in `pub(in path)` is no import.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.push(
            path.segments
                .iter()
                .map(|segment| segment.ident.to_string())
                .collect(),
        );
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.add_tokens(call.tokens.clone());
        syn::visit::visit_macro(self, call);
    }
}

/// Returns the circles: sets of modules that all import each other, directly or through others (strongly connected
/// components). It compares reachable modules, which is fast enough because the graph is small.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reachable = |from: &Module| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&Module> = imports[from].iter().collect();
        while let Some(module) = next.pop() {
            if seen.insert(module.clone()) {
                next.extend(&imports[module]);
            }
        }
        seen
    };
    let from: BTreeMap<&Module, BTreeSet<Module>> =
        imports.keys().map(|module| (module, reachable(module))).collect();
    let mut found: Vec<BTreeSet<Module>> = Vec::new();
    for (module, reached) in &from {
        if reached.contains(*module) && !found.iter().any(|circle| circle.contains(*module)) {
            let together = reached.iter().filter(|other| from[other].contains(*module));
            found.push(together.cloned().collect());
        }
    }
    found
}

/// Fails if files of a crate import each other.
fn assert_no_circle(source: &str) {
    let imports = Crate::of(source).imports();
    assert!(imports.len() > 10, "{source:?} has {} files", imports.len());
    let mut report = String::new();
    for circle in circles(&imports) {
        report += "files that import each other:\n";
        for module in &circle {
            let within = imports[module]
                .iter()
                .filter(|it| circle.contains(*it))
                .map(|it| it.join("::"));
            report += &format!(
                "  {} imports {}\n",
                module.join("::"),
                within.collect::<Vec<_>>().join(", ")
            );
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// Fails if a folder of a crate's source imports a folder that it must not.
fn assert_direction(source: &str, folders: &[(&str, &[&str])]) {
    let imports = Crate::of(source).imports();
    for (folder, may_import) in folders {
        let folder: Module = folder.split("::").map(str::to_string).collect();
        let inside = imports.iter().filter(|(module, _)| module.starts_with(&folder));
        assert!(inside.clone().count() > 0, "there is no {folder:?} in {source:?}");
        for (module, imported) in inside {
            let forbidden = imported.iter().filter(|it| {
                let path = it.join("::");
                !it.starts_with(&folder) && !may_import.iter().any(|may| path.starts_with(may))
            });
            let forbidden: Vec<String> = forbidden.map(|it| it.join("::")).collect();
            assert!(
                forbidden.is_empty(),
                "{} imports {}",
                module.join("::"),
                forbidden.join(", ")
            );
        }
    }
}

#[test]
fn the_bench_has_one_direction() {
    let folders: &[(&str, &[&str])] = &[
        ("model", &[]),
        ("report", &["model"]),
        ("measure", &["model"]),
        ("experiments", &["model", "measure"]),
    ];
    assert_direction("bench/src", folders);
}

#[test]
fn the_pure_crate_has_one_direction() {
    let folders: &[(&str, &[&str])] = &[
        ("clock", &[]),
        ("histogram", &["float"]),
        ("sampler", &["float"]),
        ("phase", &[]),
        ("pending", &[]),
        ("zeroed", &[]),
        ("stable_hash", &[]),
        ("eviction", &[]),
        ("normalise", &["stable_hash"]),
        ("plan", &["normalise"]),
        ("hint", &["normalise"]),
        ("tempfile", &["histogram"]),
        ("waits", &["histogram"]),
        (
            "model",
            &[
                "clock",
                "float",
                "histogram",
                "normalise",
                "plan",
                "tempfile",
                "waits",
            ],
        ),
        ("wrapper", &["sampler"]),
        ("reconcile", &["sampler"]),
        (
            "results",
            &["float", "histogram", "model", "reconcile", "sampler", "waits"],
        ),
        ("report", &["model", "plan"]),
        ("export", &["histogram", "model", "plan"]),
        ("logical_io", &["histogram"]),
        ("call_trace", &[]),
        // The report is also made of the stored plans.
        ("sql_trace", &["histogram", "model", "plan", "waits"]),
    ];
    assert_direction("core/src", folders);
}

#[test]
fn the_extension_has_one_direction() {
    // From the bottom up. All may import the differences between PostgreSQL's majors and the border with the server.
    let below = ["pg::compat", "pg::server"];
    for (folder, may_import) in [
        ("pg::compat", &[][..]),
        ("pg::server", &[]),
        ("guc", &[]),
        ("instrumentation", &["guc"]),
        ("pg::buffers", &[]),
        ("pg::plan", &["guc"]),
        ("pg::hot", &[]),
        ("pg::tempfile", &["guc", "pg::hot"]),
        ("pg::waits", &["guc", "pg::hot"]),
        ("pg::interpose", &["guc", "pg::tempfile", "pg::waits"]),
        ("pg::store", &["guc", "pg::tempfile", "pg::waits"]),
        ("pg::sql_trace", &["guc", "pg::hot", "pg::store", "pg::waits"]),
        ("session", &["guc", "pg::store"]),
        ("pg::live", &["pg::hot", "pg::store"]),
        ("pg::ash", &["guc", "pg::live", "pg::store", "pg::waits"]),
        ("pg::results", &["guc", "pg::hot", "pg::live", "pg::plan"]),
        (
            "pg::executor",
            &[
                "guc",
                "instrumentation",
                "session",
                "pg::hot",
                "pg::live",
                "pg::plan",
                "pg::results",
                "pg::sql_trace",
                "pg::store",
                "pg::tempfile",
                "pg::waits",
            ],
        ),
        (
            "functions",
            &[
                "guc",
                "instrumentation",
                "session",
                "pg::ash",
                "pg::buffers",
                "pg::executor",
                "pg::live",
                "pg::sql_trace",
                "pg::store",
                "pg::tempfile",
                "pg::waits",
            ],
        ),
    ] {
        assert_direction("src", &[(folder, &[may_import, &below].concat())]);
    }
}

#[test]
fn the_extension_has_no_import_circle() {
    assert_no_circle("src");
}

#[test]
fn the_pure_crate_has_no_import_circle() {
    assert_no_circle("core/src");
}

#[test]
fn the_bench_has_no_import_circle() {
    assert_no_circle("bench/src");
}

#[test]
fn a_circle_is_found() {
    let module = |name: &str| vec![name.to_string()];
    let imports = BTreeMap::from([
        (module("a"), BTreeSet::from([module("b")])),
        (module("b"), BTreeSet::from([module("c")])),
        (module("c"), BTreeSet::from([module("b")])),
    ]);
    assert_eq!(circles(&imports), [BTreeSet::from([module("b"), module("c")])]);
}
