//! Parses names of temporary files, which tell their owner.

/// The owner of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A process, by its id.
    Process(i32),
    /// A session, by its number.
    Backend(i32),
}

/// The parts of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TempName {
    /// Its owner.
    pub owner: Owner,
    /// Whether it is a directory of files that parallel workers share.
    pub is_set: bool,
}

/// Parses `pgsql_tmp<pid>.<n>`, the same with `.fileset`, and `t<backend>_<relation>`, which may be followed
/// by a fork and a segment.
pub fn parse(name: &str) -> Option<TempName> {
    if let Some(rest) = name.strip_prefix("pgsql_tmp") {
        let (pid, rest) = rest.split_once('.')?;
        let is_set = rest.ends_with(".fileset") || rest.ends_with(".sharedfileset");
        return Some(TempName {
            owner: Owner::Process(number(pid)?),
            is_set,
        });
    }
    let (backend, relation) = name.strip_prefix('t')?.split_once('_')?;
    relation.starts_with(|c: char| c.is_ascii_digit()).then_some(())?;
    Some(TempName {
        owner: Owner::Backend(number(backend)?),
        is_set: false,
    })
}

/// Parses a number. Unlike `parse` it accepts no sign.
fn number(digits: &str) -> Option<i32> {
    digits.bytes().all(|c| c.is_ascii_digit()).then_some(())?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_temporary_files_are_parsed() {
        let process = |pid, is_set| {
            Some(TempName {
                owner: Owner::Process(pid),
                is_set,
            })
        };
        let backend = |number| {
            Some(TempName {
                owner: Owner::Backend(number),
                is_set: false,
            })
        };
        assert_eq!(parse("pgsql_tmp4711.0"), process(4711, false));
        assert_eq!(parse("pgsql_tmp4711.12.fileset"), process(4711, true));
        assert_eq!(parse("t3_16384"), backend(3));
        assert_eq!(parse("t3_16384_fsm"), backend(3));
        assert_eq!(parse("t13_16384.1"), backend(13));
        let others = [
            "16384",
            "16384_vm",
            "pgsql_tmp",
            "pgsql_tmpx.1",
            "pgsql_tmp-1.1",
            "t_1",
            "t3",
            "t3_",
            "t3_x",
            "t-3_1",
            "t99999999999_1",
            "",
        ];
        for name in others {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
