//! A headless browser that opens a page from a file.

use crate::environment::environment;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a browser made of a page.
pub struct Opened {
    /// The document after its scripts have run, as HTML.
    pub document: String,
    /// What the browser wrote to its log about the page: errors of scripts, refused requests.
    pub console: Vec<String>,
    /// A picture of the window (PNG).
    pub picture: Vec<u8>,
}

/// What a page's head begins with if it may not run scripts. Chromium's own switch also turns off what writes
/// the document.
const NO_SCRIPTS: &str = r#"<head><meta http-equiv="Content-Security-Policy" content="script-src 'none'">"#;

/// The options without which Chromium would not run here. Tests run as root in containers, where its sandbox
/// does not work.
const OPTIONS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--enable-logging=stderr",
    "--window-size=1200,900",
];

/// Opens a page in Chromium, 1,200 pixels wide and 900 high. `scripts` says whether the page may run scripts.
pub fn open(name: &str, page: &str, scripts: bool) -> Opened {
    let without_scripts = page.replacen("<head>", NO_SCRIPTS, 1);
    let page = if scripts { page } else { &without_scripts };
    in_folder(name, &[], true, |folder| {
        let file = folder.join("page.html");
        fs::write(&file, page).expect("the page can be written");
        format!("file://{}", file.display())
    })
}

/// How a reader sees a page.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The width in pixels.
    pub width: u32,
    /// The reader's system is dark.
    pub is_dark: bool,
}

/// Opens a page as a reader sees it, and runs a script in it that may wait. Returns what the script returns,
/// as JSON. `libraries` are files of scripts that are loaded before.
pub fn judge(name: &str, page: &str, look: Look, libraries: &[PathBuf], script: &str) -> Value {
    let sources: String = libraries
        .iter()
        .map(|file| format!("<script src=\"file://{}\"></script>", file.display()))
        .collect();
    let script = format!(
        "<script>addEventListener('load', async () => {{
            const answer = await (async () => {{ {script} }})();
            parent.document.getElementById('answer').textContent = JSON.stringify(answer) }})</script>"
    );
    let inside = page.replacen("<head>", &format!("<head>{sources}{script}"), 1);
    // A window is at least 500 pixels wide.
    let outside = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light dark\"></head>
         <body><iframe style=\"width: {}px; height: 800px; border: 0\" srcdoc=\"{}\"></iframe><pre id=\"answer\"></pre></body></html>",
        look.width,
        inside.replace('&', "&amp;").replace('"', "&quot;")
    );
    let scheme = format!(
        "--blink-settings=preferredColorScheme={}",
        u8::from(!look.is_dark)
    );
    let opened = in_folder(name, &[scheme.as_str()], false, |folder| {
        let file = folder.join("page.html");
        fs::write(&file, outside).expect("the page can be written");
        format!("file://{}", file.display())
    });
    assert!(opened.console.is_empty(), "{:?}", opened.console);
    let answer = opened.document.split("<pre id=\"answer\">").nth(1);
    let answer = answer
        .and_then(|rest| rest.split("</pre>").next())
        .expect("an answer");
    let answer = answer
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Opens a page that is a file of a program. `script` is written to a file, and `url` returns the address for
/// its path.
pub fn open_with(name: &str, script: &str, url: impl FnOnce(&Path) -> String) -> Opened {
    in_folder(name, &[], true, |folder| {
        let file = folder.join("script.js");
        fs::write(&file, script).expect("the script can be written");
        url(&file)
    })
}

/// Opens the address that `url` returns for a new folder, with options of Chromium.
fn in_folder(name: &str, options: &[&str], wants_picture: bool, url: impl FnOnce(&Path) -> String) -> Opened {
    let folder = environment()
        .run
        .join(format!("browser-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the browser");
    let url = url(&folder);
    let picture = folder.join("picture.png");
    let run = |profile: &str, what: String| {
        let output = Command::new("chromium")
            .args(OPTIONS)
            .args(options)
            // Time in the page passes at once, as soon as it only waits. It does not wait for what the
            // browser does in other threads, so there is enough of it.
            .arg("--virtual-time-budget=30000")
            // A profile of its own, as the browser before may still be ending.
            .arg(format!("--user-data-dir={}", folder.join(profile).display()))
            .arg(what)
            .arg(&url)
            .output()
            .expect("chromium is installed");
        assert!(output.status.success(), "chromium: {}", output.status);
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (document, log) = run("document", "--dump-dom".to_owned());
    if wants_picture {
        run("picture", format!("--screenshot={}", picture.display()));
    }
    let console = log.lines().filter(|line| line.contains("CONSOLE"));
    let opened = Opened {
        document,
        console: console.map(str::to_owned).collect(),
        picture: fs::read(&picture).unwrap_or_default(),
    };
    // The browser's last processes may still write to the folder. What they write then stays.
    let _ = fs::remove_dir_all(folder);
    opened
}
