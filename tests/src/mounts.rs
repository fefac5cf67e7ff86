//! Mounts that only one server sees: a mount namespace, kept by a sleeping process. Needs root.

use crate::environment::environment;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A mount namespace with a few small file systems. It ends with this value and the servers in it.
pub struct Mounts {
    holder: Child,
}

impl Mounts {
    /// Creates a namespace in which each of these folders is an empty file system of this many bytes. Needs
    /// root and `mount`, which the chroots of the other majors lack. So the name of each test that uses it
    /// ends in `_needs_mount`.
    pub fn new(folders: &[(&Path, u64)]) -> Mounts {
        let mut script = String::from("set -e\n");
        for (folder, bytes) in folders {
            let mount = format!(
                "mount -t tmpfs -o size={bytes},mode=1777 tmpfs '{}'\n",
                folder.display()
            );
            let servers = &environment().servers;
            script += &match servers.starts_with(folder) {
                false => mount,
                // The servers' own folder stays where it is.
                true => format!(
                    "mount --bind '{0}' /mnt\n{mount}mkdir -p '{0}'\nmount --move /mnt '{0}'\n",
                    servers.display()
                ),
            };
        }
        script += "echo ready\nexec sleep infinity\n";
        let mut holder = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare can be run");
        let mut said = [0; 6];
        let ready = holder
            .stdout
            .as_mut()
            .map(|stdout| std::io::Read::read_exact(stdout, &mut said));
        assert!(
            matches!(ready, Some(Ok(()))),
            "the file systems cannot be mounted"
        );
        Mounts { holder }
    }

    /// Gives one of the file systems another size.
    pub fn resize(&self, folder: &Path, bytes: u64) {
        let enter = self.enter();
        let status = Command::new(&enter[0])
            .args(&enter[1..])
            .args(["mount", "-o", &format!("remount,size={bytes}")])
            .arg(folder)
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "it cannot be resized"
        );
    }

    /// Returns the command prefix that runs a command inside.
    pub fn enter(&self) -> Vec<String> {
        let namespace = self.root().join("ns/mnt");
        ["nsenter".to_string(), format!("--mount={}", namespace.display())].to_vec()
    }

    /// Returns the path outside of the namespace of a path inside.
    pub fn outside(&self, path: &Path) -> PathBuf {
        self.root()
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(path))
    }

    fn root(&self) -> PathBuf {
        Path::new("/proc").join(self.holder.id().to_string())
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
