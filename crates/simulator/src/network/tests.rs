//! The double passes the conformance suite of real connections.

use aod_testkit::gateways::{Server, check_all};

use super::*;

#[tokio::test(start_paused = true)]
async fn transport_double_passes_conformance_suite() {
    let world = World::new(0, false);
    world.calm();
    let (network, program, server) = (Network::default(), Program::default(), Server::default());
    let listening = Listening {
        program: program.clone(),
        router: server.router(),
        switch: Switch::new(),
    };
    network.listen("gateway", listening);
    let route = Route {
        bearer: None,
        network: network.clone(),
        world,
        who: "node".into(),
        host: Switch::new(),
    };
    let stop = || {
        network.close("gateway");
        program.kill();
    };
    check_all(&route, &server, "http://gateway", stop).await;
}
