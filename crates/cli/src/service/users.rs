//! The users of the broker: a credentials file for each part, and the configuration of nats-server that is generated
//! from these files.
//!
//! ```text
//! nats-admin.creds, nats-gateway.creds, nats-node.creds   one for each part; created once
//! nats-node-<name>.creds                                  for one node; created on request
//! nats-users.conf                                         generated from the credentials files at each call
//! ```
//!
//! In earlier versions, all users shared one account with all rights. Such a configuration stays unchanged until
//! [`Users::upgrade`], because the streams of the broker must move with it.

use std::fs;
use std::path::{Path, PathBuf};

use aod_jetstream::Credentials as Login;
use aod_jetstream::rights::{self, OWNER, Part, User};

use super::data::{self, NAME_BYTES_MAX};
use crate::failure::Failure;

/// The users of the parts; they always exist.
const ADMIN: &str = "admin";
const GATEWAY: &str = "gateway";
const NODE: &str = "node";

/// The prefix of users for single nodes.
const NODE_PREFIX: &str = "node-";

/// The directory of the streams of users without an account, below the server's store.
const FORMER_ACCOUNT: &str = "jetstream/$G";

/// The users of the broker in one directory.
#[derive(Clone, Debug)]
pub struct Users(PathBuf);

impl Users {
    pub(super) fn of(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// The fragment of nats-server's configuration.
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

    /// Whether these are users of an earlier version, with all rights.
    pub fn are_unlimited(&self) -> bool {
        fs::read_to_string(self.configuration()).is_ok_and(|text| !text.contains("accounts {"))
    }

    /// Creates missing files, and updates the configuration; returns the written files.
    pub(super) fn ensure(&self) -> Result<Vec<PathBuf>, Failure> {
        if self.are_unlimited() {
            return self.split_former();
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

    /// Adds a user for the node `name`. An existing user keeps its password.
    pub fn add_node(&self, name: &str) -> Result<Vec<PathBuf>, Failure> {
        if self.are_unlimited() {
            return Err(Failure::usage(
                "cannot add a user for one node: the users have unlimited rights",
            )
            .with_hint("upgrade them with `aod credentials DIR --upgrade`"));
        }
        if !data::is_plain_name(name) {
            let message = format!(
                "invalid node name {name:?}: expected 1 to {NAME_BYTES_MAX} characters of A-Z, a-z, 0-9, - and _"
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

    /// Limits the users of an earlier version to the rights of their parts, with new passwords because every host had
    /// the old ones, and moves the streams in `store` to the new account. The broker must be stopped. Returns the
    /// written files; none if no upgrade is necessary.
    pub fn upgrade(&self, store: &Path) -> Result<Vec<PathBuf>, Failure> {
        let (former, new) = (
            store.join(FORMER_ACCOUNT),
            store.join("jetstream").join(OWNER),
        );
        if former.exists() {
            if new.exists() {
                let message = format!("{} and {} both exist", former.display(), new.display());
                return Err(Failure::environment(message)
                    .with_hint("keep the directory with the log, and move the other one away"));
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

    /// Creates a file for each part from the former configuration.
    fn split_former(&self) -> Result<Vec<PathBuf>, Failure> {
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

    /// All users with a file, sorted by name.
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
    let unusable = || Failure::usage(format!("{} contains no user", file.display()));
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
            "{} is not a credentials file of the user {name}",
            file.display()
        ))
        .with_hint("remove the file, and run `aod credentials` again"));
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
    use crate::service::data::tests::names;

    /// A configuration of an earlier version.
    const FORMER: &str = "authorization {\n  users = [\n    { user: \"gateway\", password: \"0a\" }\n    \
        { user: \"node\", password: \"0b\" }\n    { user: \"admin\", password: \"0c\" }\n  ]\n}\n";

    #[test]
    fn ensure_creates_one_user_per_part_and_the_configuration() {
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
        // A configuration with the rights of another version is replaced.
        fs::write(users.configuration(), "accounts {}\n").unwrap();
        assert_eq!(names(&users.ensure().unwrap()), ["nats-users.conf"]);
        assert_eq!(fs::read_to_string(users.configuration()).unwrap(), text);
    }

    #[test]
    fn user_of_host_exists_as_long_as_its_file() {
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
    fn users_of_earlier_version_are_unchanged_until_upgrade() {
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
