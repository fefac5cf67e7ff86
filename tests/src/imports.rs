//! Reads the imports of the project's own crates from their sources: no two files import each other, directly
//! or through others, and each folder imports only those that `layers.rs` allows.

use crate::documents::read;
use crate::layers::{CRATES, FOUNDATION, Layer};
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

/// Returns the circles: sets of modules that all import each other, directly or through others (strongly
/// connected components). It compares reachable modules, which is fast enough because the graph is small.
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

/// Fails if a folder imports a folder that it must not.
fn assert_direction(imports: &BTreeMap<Module, BTreeSet<Module>>, folder: &str, may_import: &[&str]) {
    let folder: Module = folder.split("::").map(str::to_string).collect();
    let inside = imports.iter().filter(|(module, _)| module.starts_with(&folder));
    assert!(inside.clone().count() > 0, "there is no {folder:?}");
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

/// Fails unless each folder of a crate has a layer, and the layers import only those above them in the list.
fn assert_layers(source: &str, layers: &[Layer], below: &[&str]) {
    let rows: Vec<&str> = layers.iter().map(|layer| layer.folder).collect();
    let imports = Crate::of(source).imports();
    for module in imports.keys().filter(|module| !module.is_empty()) {
        let module = module.join("::") + "::";
        // A folder of folders that have rows has none.
        let has_row = |row: &&str| {
            let row = format!("{row}::");
            module.starts_with(&row) || row.starts_with(&module)
        };
        assert!(
            rows.iter().any(has_row),
            "{module} of {source} has no row in tests/src/layers.rs"
        );
    }
    for (at, layer) in layers.iter().enumerate() {
        for import in layer.imports {
            assert!(
                rows[..at].contains(import),
                "{} imports {import}, which does not stand above it",
                layer.folder
            );
        }
        let below = below.iter().filter(|it| rows[..at].contains(it));
        let may_import: Vec<&str> = layer.imports.iter().chain(below).copied().collect();
        assert_direction(&imports, layer.folder, &may_import);
    }
}

#[test]
fn each_folder_imports_only_what_lies_below() {
    for (source, layers) in CRATES {
        let below: &[&str] = if source == "src" { &FOUNDATION } else { &[] };
        assert_layers(source, layers, below);
    }
}

#[test]
fn the_pure_crate_does_not_depend_on_postgresql() {
    let manifest = read("core/Cargo.toml");
    assert!(!manifest.contains("pgrx"), "{manifest}");
    for (path, text) in rust_files("core/src") {
        assert!(!text.contains("pg_sys::"), "{}", path.display());
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
fn the_terminal_program_has_no_import_circle() {
    assert_no_circle("cli/src");
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
