//! The user that an image sets: one of its own users, and not root.

use super::look::Look;
use crate::engine::CallError;

/// Maximum size of a list of users or groups, in bytes.
const LIST_SIZE_BYTES_MAX: usize = 1 << 20;

/// Why a capsule cannot run as the `user` that the image sets; none if it can.
pub(super) async fn check(look: &Look<'_>, user: &str) -> Result<Option<String>, CallError> {
    let users = look.text("/etc/passwd", LIST_SIZE_BYTES_MAX).await?;
    let groups = look.text("/etc/group", LIST_SIZE_BYTES_MAX).await?;
    Ok(problem(user, users.as_deref(), groups.as_deref()))
}

/// Why a capsule cannot run as `user`, a user with or without a group, each a name or a number. An image may have its
/// lists behind links, which are not followed here: the engine reports an unknown name at the start then.
fn problem(user: &str, users: Option<&str>, groups: Option<&str>) -> Option<String> {
    let (user, group) = user.split_once(':').unwrap_or((user, ""));
    let is_name = |text: &str| !text.is_empty() && text.parse::<u32>().is_err();
    if is_name(user) && user != "root" {
        match users.map(|users| number_of(user, users)) {
            Some(None) => {
                return Some(format!(
                    "the image sets USER {user}, and its /etc/passwd has no such user; add the user, or use a number"
                ));
            }
            Some(Some(number)) if number.parse() == Ok(0_u32) => {
                return Some(format!(
                    "the user {user} of the image has the number 0, which is root; set USER to another user"
                ));
            }
            _ => (),
        }
    }
    let is_missing =
        is_name(group) && groups.is_some_and(|groups| number_of(group, groups).is_none());
    is_missing.then(|| {
        format!("the image sets the group {group} in USER, and its /etc/group has no such group; use a number")
    })
}

/// The number of a user or group in a list, as text; none if the list has no such name. Source: passwd(5), group(5).
fn number_of<'l>(name: &str, list: &'l str) -> Option<&'l str> {
    let mut lines = list.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        (fields.next() == Some(name)).then(|| fields.nth(1).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_of_the_image_is_one_of_its_users_and_not_root() {
        let users = Some("root:x:0:0::/root:/bin/sh\ntoor:x:0:0:::\napp:x:1000:1000:::\n");
        let groups = Some("app:x:1000:\n");
        for (user, expected) in [
            ("", None),
            ("root", None),
            ("app", None),
            ("app:app", None),
            ("1000:5", None),
            ("other", Some("no such user")),
            ("toor", Some("is root")),
            ("app:other", Some("no such group")),
            ("4294967296", Some("no such user")),
        ] {
            let found = problem(user, users, groups);
            assert_eq!(found.is_some(), expected.is_some(), "{user}: {found:?}");
            let text = found.unwrap_or_default();
            assert!(
                text.contains(expected.unwrap_or_default()),
                "{user}: {text}"
            );
        }
        assert_eq!(problem("app", None, None), None, "the lists may be links");
    }
}
