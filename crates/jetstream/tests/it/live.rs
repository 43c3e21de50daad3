//! Presence across the death of the server.

use aod_ports::presence::Presence as _;
use aod_testkit::events::soon;
use aod_testkit::live::gateway;

use crate::support::{connect, start};

#[tokio::test]
async fn presence_is_created_again_after_restart_of_server() {
    let (mut server, broker) = start().await;
    let presence = broker.presence();
    presence.announce(&gateway(1)).await.unwrap();
    let server = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    })
    .await
    .unwrap();
    let reader = connect(&server).await.presence();
    soon(async { while presence.announce(&gateway(2)).await.is_err() {} }).await;
    assert!(reader.members().await.unwrap().contains(&gateway(2)));
}
