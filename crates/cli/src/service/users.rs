//! The users of the broker: a file with user and password for each part, and the configuration that is made
//! of all of them.
//!
//! ```text
//! nats-admin.creds, nats-gateway.creds, nats-node.creds   one a part; made once
//! nats-node-<name>.creds                                  of one host; made when asked for
//! nats-users.conf                                         made of the others, whenever something is asked
//! ```
//!
//! Once all users had one account and could do everything. A file that says so is left as it is until
//! somebody upgrades it, since what the broker has stored must move along.

use std::fs;
use std::path::{Path, PathBuf};

use aod_jetstream::Credentials as Login;
use aod_jetstream::rights::{self, OWNER, Part, User};

use super::data;
use crate::failure::Failure;

/// The users that are always there, and their parts.
const ADMIN: &str = "admin";
const GATEWAY: &str = "gateway";
const NODE: &str = "node";

/// What the names of users of single hosts begin with.
const NODE_PREFIX: &str = "node-";

/// Longest name of a host, in bytes: enough for any, and for a token of a subject.
const NAME_BYTES_MAX: usize = 63;

/// Where a server keeps the streams of users that no account was given, below its store.
const FORMER_ACCOUNT: &str = "jetstream/$G";

/// The users of the broker in one directory.
#[derive(Clone, Debug)]
pub struct Users(PathBuf);

impl Users {
    pub(super) fn of(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// The fragment of a configuration of nats-server.
    pub fn configuration(&self) -> PathBuf {
        self.0.join("nats-users.conf")
    }

    pub fn admin(&self) -> PathBuf {
        self.file(ADMIN)
    }

    pub fn gateway(&self) -> PathBuf {
        self.file(GATEWAY)
    }

    pub fn node(&self) -> PathBuf {
        self.file(NODE)
    }

    fn file(&self, user: &str) -> PathBuf {
        self.0.join(format!("nats-{user}.creds"))
    }

    /// Whether these are users of an earlier version, who may do everything.
    pub fn are_unlimited(&self) -> bool {
        fs::read_to_string(self.configuration()).is_ok_and(|text| !text.contains("accounts {"))
    }

    /// Makes what is missing, and the configuration anew if it is not what it must be; answers what it wrote.
    pub(super) fn ensure(&self) -> Result<Vec<PathBuf>, Failure> {
        if self.are_unlimited() {
            return self.spread_former();
        }
        let mut written = Vec::new();
        for user in [ADMIN, GATEWAY, NODE] {
            let file = self.file(user);
            if !file.exists() {
                data::write_private(&file, &login(user, &data::draw_secret()?))?;
                written.push(file);
            }
        }
        written.extend(self.write_configuration()?);
        Ok(written)
    }

    /// A user of the host `name` alone. One that exists keeps its password.
    pub fn add_node(&self, name: &str) -> Result<Vec<PathBuf>, Failure> {
        if self.are_unlimited() {
            return Err(
                Failure::usage("users of single hosts need users that are limited")
                    .with_hint("`aod credentials DIR --upgrade` makes them"),
            );
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_plain) {
            let message = format!(
                "{name:?} is no name of a host: 1 to {NAME_BYTES_MAX} of A-Z, a-z, 0-9, - and _ are"
            );
            return Err(Failure::usage(message));
        }
        let user = format!("{NODE_PREFIX}{name}");
        let file = self.file(&user);
        let mut written = Vec::new();
        if !file.exists() {
            data::write_private(&file, &login(&user, &data::draw_secret()?))?;
            written.push(file);
        }
        written.extend(self.write_configuration()?);
        Ok(written)
    }

    /// Gives users of an earlier version, who may do everything, the rights of their parts, and new passwords,
    /// since every host has had that of all; what the broker has stored in `store` moves to its new account.
    /// The broker must not run meanwhile. Answers what it wrote; nothing if there is nothing to upgrade.
    pub fn upgrade(&self, store: &Path) -> Result<Vec<PathBuf>, Failure> {
        let (former, new) = (
            store.join(FORMER_ACCOUNT),
            store.join("jetstream").join(OWNER),
        );
        if former.exists() {
            if new.exists() {
                let message = format!("{} and {} are both there", former.display(), new.display());
                return Err(Failure::environment(message)
                    .with_hint("one of them has the log: move the other one away"));
            }
            fs::rename(&former, &new).map_err(|error| data::unusable(&former, &error))?;
        }
        if !self.are_unlimited() {
            return Ok(Vec::new());
        }
        let mut former = vec![self.configuration(), self.0.join("nats-client.creds")];
        former.extend([ADMIN, GATEWAY, NODE].map(|user| self.file(user)));
        for file in former.into_iter().rev() {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(data::unusable(&file, &error));
                }
                _ => (),
            }
        }
        self.ensure()
    }

    /// A file for each part, with the user that it has had.
    fn spread_former(&self) -> Result<Vec<PathBuf>, Failure> {
        let path = self.configuration();
        let text = fs::read_to_string(&path).map_err(|error| data::unusable(&path, &error))?;
        let mut written = Vec::new();
        for user in [ADMIN, GATEWAY, NODE] {
            let file = self.file(user);
            let password = text.lines().find_map(|line| {
                let rest = line
                    .split_once(&format!("user: \"{user}\", password: \""))?
                    .1;
                rest.split('"').next()
            });
            if let (false, Some(password)) = (file.exists(), password) {
                data::write_private(&file, &login(user, password))?;
                written.push(file);
            }
        }
        Ok(written)
    }

    fn write_configuration(&self) -> Result<Option<PathBuf>, Failure> {
        let path = self.configuration();
        let text = rights::configuration(&self.all()?);
        if fs::read_to_string(&path).ok().as_ref() == Some(&text) {
            return Ok(None);
        }
        data::write_private(&path, &text)?;
        Ok(Some(path))
    }

    /// All users that have a file, in the order of their names.
    fn all(&self) -> Result<Vec<User>, Failure> {
        let unusable = |error: &std::io::Error| data::unusable(&self.0, error);
        let mut users = Vec::new();
        for entry in fs::read_dir(&self.0).map_err(|error| unusable(&error))? {
            let entry = entry.map_err(|error| unusable(&error))?;
            let name = entry.file_name();
            let user = name.to_str().and_then(|name| {
                let user = name.strip_prefix("nats-")?.strip_suffix(".creds")?;
                let is_ours =
                    [ADMIN, GATEWAY, NODE].contains(&user) || user.starts_with(NODE_PREFIX);
                is_ours.then_some(user)
            });
            if let Some(user) = user {
                users.push(read_user(user, &entry.path())?);
            }
        }
        users.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(users)
    }
}

fn login(user: &str, password: &str) -> String {
    format!("{user}\n{password}\n")
}

fn read_login(file: &Path) -> Result<(String, String), Failure> {
    let unusable = || Failure::usage(format!("{} holds no user", file.display()));
    match Login::from_file(file) {
        Ok(Login::UserPassword { user, password }) => Ok((user, password)),
        Ok(Login::None) => Err(unusable()),
        Err(error) => Err(unusable().because(&error)),
    }
}

fn read_user(name: &str, file: &Path) -> Result<User, Failure> {
    let (user, password) = read_login(file)?;
    let is_hexadecimal = password.bytes().all(|byte| byte.is_ascii_hexdigit());
    if user != name || !is_hexadecimal {
        return Err(Failure::usage(format!(
            "{} was not made for the user {name}",
            file.display()
        ))
        .with_hint("remove it and make it anew"));
    }
    let part = match name {
        ADMIN => Part::Admin,
        GATEWAY => Part::Gateway,
        _ => Part::Node,
    };
    Ok(User {
        name: user,
        password,
        part,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As they once were made.
    const FORMER: &str = "authorization {\n  users = [\n    { user: \"gateway\", password: \"0a\" }\n    \
        { user: \"node\", password: \"0b\" }\n    { user: \"admin\", password: \"0c\" }\n  ]\n}\n";

    fn names(files: &[PathBuf]) -> Vec<&str> {
        files
            .iter()
            .map(|file| file.file_name().unwrap().to_str().unwrap())
            .collect()
    }

    #[test]
    fn each_part_has_its_own_user_and_the_configuration_has_all() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        let made = users.ensure().unwrap();
        let all = [
            "nats-admin.creds",
            "nats-gateway.creds",
            "nats-node.creds",
            "nats-users.conf",
        ];
        assert_eq!(names(&made), all);
        let text = fs::read_to_string(users.configuration()).unwrap();
        for file in [users.admin(), users.gateway(), users.node()] {
            assert!(
                text.contains(&read_login(&file).unwrap().1),
                "{}",
                file.display()
            );
        }
        assert_eq!(users.ensure().unwrap(), Vec::<PathBuf>::new());
        // Another version knew other rights.
        fs::write(users.configuration(), "accounts {}\n").unwrap();
        assert_eq!(names(&users.ensure().unwrap()), ["nats-users.conf"]);
        assert_eq!(fs::read_to_string(users.configuration()).unwrap(), text);
    }

    #[test]
    fn a_host_gets_a_user_of_its_own_and_loses_it_with_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        users.ensure().unwrap();
        let made = users.add_node("berlin").unwrap();
        assert_eq!(names(&made), ["nats-node-berlin.creds", "nats-users.conf"]);
        let password = read_login(&made[0]).unwrap().1;
        let text = || fs::read_to_string(users.configuration()).unwrap();
        assert!(text().contains(&password));
        assert_eq!(users.add_node("berlin").unwrap(), Vec::<PathBuf>::new());
        fs::remove_file(&made[0]).unwrap();
        assert_eq!(names(&users.ensure().unwrap()), ["nats-users.conf"]);
        assert!(!text().contains(&password));
        for name in ["", "a.b", "a b", "*", &"x".repeat(64)] {
            assert!(users.add_node(name).is_err(), "{name}");
        }
    }

    #[test]
    fn users_of_an_earlier_version_are_kept_until_they_are_upgraded() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        fs::write(users.configuration(), FORMER).unwrap();
        fs::write(directory.path().join("nats-client.creds"), "gateway\n0a\n").unwrap();
        let made = users.ensure().unwrap();
        assert_eq!(
            names(&made),
            ["nats-admin.creds", "nats-gateway.creds", "nats-node.creds"]
        );
        assert_eq!(
            read_login(&users.node()).unwrap(),
            ("node".to_owned(), "0b".to_owned())
        );
        assert_eq!(fs::read_to_string(users.configuration()).unwrap(), FORMER);
        assert!(users.are_unlimited() && users.add_node("berlin").is_err());

        let store = directory.path().join("js");
        fs::create_dir_all(store.join(FORMER_ACCOUNT).join("streams/EVENTS")).unwrap();
        let made = users.upgrade(&store).unwrap();
        assert_eq!(names(&made).len(), 4);
        assert!(store.join("jetstream/AOD/streams/EVENTS").exists());
        assert!(!store.join(FORMER_ACCOUNT).exists());
        assert!(!directory.path().join("nats-client.creds").exists());
        assert!(!users.are_unlimited());
        assert_ne!(read_login(&users.gateway()).unwrap().1, "0a");
        assert_eq!(users.upgrade(&store).unwrap(), Vec::<PathBuf>::new());
    }
}
