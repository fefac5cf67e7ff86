//! A headless browser that opens a page from a file.

use crate::environment::environment;
use std::fs;
use std::path::Path;
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
    in_folder(name, |folder| {
        let file = folder.join("page.html");
        fs::write(&file, page).expect("the page can be written");
        format!("file://{}", file.display())
    })
}

/// Opens a page that is a file of a program. `script` is written to a file, and `url` returns the address for
/// its path.
pub fn open_with(name: &str, script: &str, url: impl FnOnce(&Path) -> String) -> Opened {
    in_folder(name, |folder| {
        let file = folder.join("script.js");
        fs::write(&file, script).expect("the script can be written");
        url(&file)
    })
}

/// Opens the address that `url` returns for a new folder.
fn in_folder(name: &str, url: impl FnOnce(&Path) -> String) -> Opened {
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
    run("picture", format!("--screenshot={}", picture.display()));
    let console = log.lines().filter(|line| line.contains("CONSOLE"));
    let opened = Opened {
        document,
        console: console.map(str::to_owned).collect(),
        picture: fs::read(&picture).expect("a picture"),
    };
    // The browser's last processes may still write to the folder. What they write then stays.
    let _ = fs::remove_dir_all(folder);
    opened
}
