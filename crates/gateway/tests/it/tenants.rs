//! Two tenants on one cluster: the rights of each, and their isolation.

use std::collections::BTreeSet;

use aod_domain::access::{Reach, Role};
use aod_domain::capsule::Handoffs;
use aod_domain::tenant::Tenant;
use aod_gateway::ROUTES;
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::dead_letters::lose;
use crate::harness::{Answer, Client, Cluster, PATIENCE, any_schema, send};
use crate::node::{ScriptedNode, Taken};

/// A caller with a token, at one gateway.
struct Person<'a> {
    gateway: &'a Client,
    token: String,
}

impl Person<'_> {
    fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let request = self.gateway.without_token(method, path);
        request.bearer_auth(&self.token)
    }

    async fn get(&self, path: &str) -> Answer {
        send(self.request("GET", path)).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        send(self.request("POST", path).json(body)).await
    }

    /// Runs `echo` to its end, with a file of its own.
    async fn run(&self, word: &str) -> Value {
        let uploaded = self.request("POST", "/v1/files").body(word.to_owned());
        let file = send(uploaded).await.expect(201)["file"].clone();
        let files = json!([{"name": format!("{word}.txt"), "file": file}]);
        let body = json!({"capsule": "echo", "arguments": {"word": word}, "files": files});
        let request = self.request("POST", "/v1/runs").json(&body);
        let request = request.header("idempotency-key", "the same");
        send(request.header("prefer", "wait=50")).await.expect(200)
    }
}

/// Lets the administrator create a token for `tenant`.
async fn person<'a>(
    gateway: &'a Client,
    tenant: Option<&str>,
    name: &str,
    role: Role,
) -> Person<'a> {
    let mut body = json!({"name": name, "role": role});
    match tenant {
        Some(tenant) => body["tenant"] = tenant.into(),
        None => body["all_tenants"] = true.into(),
    }
    let created = gateway.post("/v1/tokens", &body).await.expect(201);
    let token = created["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("aod_") && token.len() == 68, "{token}");
    Person { gateway, token }
}

/// Two gateways, and `echo` for both tenants.
async fn cluster() -> (Cluster, Client, Client, ScriptedNode) {
    let cluster = Cluster::start().await;
    for tenant in ["acme", "birds"] {
        let tenant: Tenant = tenant.parse().unwrap();
        let handoffs = Handoffs::Listed(vec![]);
        cluster
            .register_for(&tenant, "echo", &any_schema(), handoffs)
            .await;
    }
    let (one, other) = (cluster.gateway("one").await, cluster.gateway("other").await);
    let node = ScriptedNode::echo(&cluster).await;
    (cluster, one, other, node)
}

/// Repeats the request until the answer has `status`: other gateways learn of events a moment later.
async fn until_status(person: &Person<'_>, path: &str, status: u16) -> Answer {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = person.get(path).await;
        if answer.status == status {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "still {answer:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Method, path and description of each operation.
fn operations() -> Vec<(String, String, String)> {
    let document: Value = serde_json::from_str(aod_gateway::openapi_document()).unwrap();
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let text = operation["description"].as_str().unwrap_or_default();
            operations.push((method.to_uppercase(), path.clone(), text.to_owned()));
        }
    }
    operations
}

/// A path with values for its parameters.
fn filled(path: &str, run: &str) -> String {
    let parts = path.split('/').map(|part| match part {
        "{run}" | "{other}" => run.to_owned(),
        "{event}" => "1".to_owned(),
        "{digest}" => "0".repeat(64),
        "{node}" => "node_00000000000000000000000004".to_owned(),
        "{token}" => "token_00000000000000000000000004".to_owned(),
        part if part.starts_with('{') => "anything".to_owned(),
        part => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn every_route_is_in_the_table_and_documents_its_role() {
    let open = ["/health", "/ready"];
    let described = operations();
    let described = described
        .iter()
        .filter(|(_, path, _)| !open.contains(&path.as_str()));
    let mut found = BTreeSet::new();
    for (method, path, text) in described {
        let route = ROUTES
            .iter()
            .find(|route| route.method == method && route.plain_path() == *path);
        let need = route
            .unwrap_or_else(|| panic!("{method} {path} is not in the table"))
            .need;
        assert!(
            text.contains(&format!("Requires the role `{}`", need.role)),
            "{method} {path}: {text}"
        );
        assert_eq!(
            text.contains("for all tenants"),
            need.reach == Reach::Cluster
        );
        found.insert((method.clone(), path.clone()));
    }
    for route in ROUTES {
        assert!(
            found.contains(&(route.method.to_owned(), route.plain_path())),
            "{route:?} is not described"
        );
    }
}

#[tokio::test]
async fn each_role_may_use_exactly_its_routes() {
    let (_cluster, gateway, _other, _node) = cluster().await;
    let nobody = "run_00000000000000000000000004";
    for tenant in [Some("acme"), None] {
        for role in Role::ALL {
            let name = format!("{role}-{}", tenant.unwrap_or("all"));
            let person = person(&gateway, tenant, &name, role).await;
            for route in ROUTES {
                let path = filled(&route.plain_path(), nobody);
                let answer = send(person.request(route.method, &path)).await;
                let is_of_all = tenant.is_none() || route.need.reach == Reach::Tenant;
                let code = match serde_json::from_slice::<Value>(&answer.body) {
                    Ok(body) => body["code"].as_str().unwrap_or_default().to_owned(),
                    Err(_) => String::new(),
                };
                let is_refused = answer.status == 403 && code == "not_permitted";
                let is_allowed = role >= route.need.role && is_of_all;
                assert_eq!(is_refused, !is_allowed, "{name}: {route:?}: {answer:?}");
                assert_ne!(answer.status, 401, "{name}: {route:?}");
            }
        }
    }
    let stranger = Person {
        gateway: &gateway,
        token: "aod_".to_owned() + &"0".repeat(64),
    };
    for route in ROUTES {
        let path = filled(&route.plain_path(), nobody);
        let with_wrong = send(stranger.request(route.method, &path)).await;
        let without = send(gateway.without_token(route.method, &path)).await;
        for answer in [with_wrong, without] {
            assert_eq!(answer.status, 401, "{route:?}");
            assert_eq!(answer.json()["code"], "unauthorized", "{route:?}");
        }
    }
}

/// Every route gives the same answer as for a run that does not exist.
async fn assert_does_not_exist(stranger: &Person<'_>, run: &str) {
    let nobody = "run_00000000000000000000000004";
    let told = |answer: &Answer, id: &str| {
        let mut problem = answer.json();
        problem.as_object_mut().unwrap().remove("request_id");
        problem.to_string().replace(id, "ID")
    };
    for route in ROUTES.iter().filter(|route| route.path.contains("{run}")) {
        let [found, expected] = [run, nobody].map(|id| filled(&route.plain_path(), id));
        let found = send(stranger.request(route.method, &found)).await;
        let expected = send(stranger.request(route.method, &expected)).await;
        let status = match route.need.reach {
            Reach::Tenant => 404,
            Reach::Cluster => 403,
        };
        assert_eq!(found.status, status, "{route:?}: {found:?}");
        assert_eq!(told(&found, run), told(&expected, nobody), "{route:?}");
    }
}

#[tokio::test]
async fn data_of_another_tenant_does_not_exist() {
    let (cluster, gateway, other, _node) = cluster().await;
    let acme = person(&gateway, Some("acme"), "ada", Role::Admin).await;
    let birds = person(&gateway, Some("birds"), "ada", Role::Admin).await;
    let theirs = acme.run("secret-of-acme").await;
    let own = birds.run("own-of-birds").await;
    let run = theirs["id"].as_str().unwrap();
    assert_ne!(
        run,
        own["id"].as_str().unwrap(),
        "the same key of another tenant is another run"
    );
    assert_eq!(theirs["tenant"], "acme");
    assert_eq!(theirs["requested_by"], "acme/ada");

    // The answer is the same as for a run that does not exist.
    for gateway in [&gateway, &other] {
        let stranger = Person {
            gateway,
            token: birds.token.clone(),
        };
        until_status(&stranger, "/v1/runs", 200).await;
        assert_does_not_exist(&stranger, run).await;
    }
    // Of two runs, an own one does not help.
    let mixed = format!("/v1/runs/{}/diff/{run}", own["id"].as_str().unwrap());
    assert_eq!(birds.get(&mixed).await.expect(404)["code"], "unknown_run");
    let from = json!({"from": run});
    let rerun = format!("/v1/runs/{}/rerun", own["id"].as_str().unwrap());
    let refused = birds.post(&rerun, &from).await.expect(404);
    assert_eq!(refused["code"], "unknown_run");

    // No list, search or stream contains the run.
    let sequence = theirs["sequence"].as_u64().unwrap();
    for path in [
        format!("/v1/runs?at_least={sequence}"),
        "/v1/runs?text=secret".to_owned(),
        "/v1/events?limit=500".to_owned(),
        "/v1/events?limit=500&text=secret".to_owned(),
        format!("/v1/events?limit=500&run={run}"),
        "/v1/deadletters?all=true".to_owned(),
        "/v1/capsules".to_owned(),
        "/visualizer/state".to_owned(),
        "/v1/tokens".to_owned(),
    ] {
        let answer = birds.get(&path).await;
        let text = answer.expect(200).to_string();
        assert!(
            !text.contains("acme") && !text.contains(run),
            "{path}: {text}"
        );
    }
    for path in [
        "/v1/runs?tenant=acme",
        "/v1/events?tenant=acme",
        "/v1/deadletters?tenant=acme",
    ] {
        assert_eq!(birds.get(path).await.status, 400, "{path}");
    }
    // A token for all tenants sees both, or one of them on request.
    let all = gateway.get("/v1/runs").await.expect(200);
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    let of_acme = gateway.get("/v1/runs?tenant=acme").await.expect(200);
    assert_eq!(of_acme["items"][0]["id"], run);
    assert_eq!(of_acme["items"].as_array().unwrap().len(), 1);
    let events = gateway
        .get("/v1/events?tenant=acme&type=launched")
        .await
        .expect(200);
    assert_eq!(events["items"].as_array().unwrap().len(), 1);
    drop(cluster);
}

#[tokio::test]
async fn digest_gives_no_access_to_file_of_another_tenant() {
    let (_cluster, gateway, _other, _node) = cluster().await;
    let acme = person(&gateway, Some("acme"), "ada", Role::Run).await;
    let birds = person(&gateway, Some("birds"), "ada", Role::Run).await;
    let theirs = acme.run("plans").await;
    let digest = theirs["result"]["files"][0]["digest"].as_str().unwrap();
    let path = format!("/v1/files/{digest}");
    assert_eq!(acme.get(&path).await.body.as_ref(), b"plans");
    let refused = birds.get(&path).await;
    let never = birds.get(&format!("/v1/files/{}", "0".repeat(64))).await;
    assert_eq!(refused.expect(404)["code"], "unknown_file");
    assert_eq!(never.expect(404)["code"], "unknown_file");
    let named = json!([{"name": "stolen.txt", "file": format!("aod:file/{digest}")}]);
    let body = json!({"capsule": "echo", "arguments": {}, "files": named});
    let refused = birds.post("/v1/runs", &body).await.expect(400);
    assert_eq!(refused["errors"][0]["pointer"], "/files/0");
    let body = json!({"capsule": "echo", "input": {}, "files": {"stolen.txt": format!("aod:file/{digest}")}});
    let refused = birds.post("/execute", &body).await.expect(200);
    assert_eq!(refused["success"], false);
    // A tenant that uploads the same content has the file.
    let uploaded = birds.request("POST", "/v1/files").body("plans");
    assert_eq!(send(uploaded).await.expect(201)["digest"], digest);
    assert_eq!(birds.get(&path).await.status, 200);
}

#[tokio::test]
async fn capsules_belong_to_one_tenant() {
    let (cluster, gateway, _other, _node) = cluster().await;
    let birds_only: Tenant = "birds".parse().unwrap();
    let handoffs = Handoffs::Listed(vec![]);
    cluster
        .register_for(&birds_only, "songs", &any_schema(), handoffs)
        .await;
    let acme = person(&gateway, Some("acme"), "ada", Role::Operate).await;
    let birds = person(&gateway, Some("birds"), "ada", Role::Run).await;
    until_status(&birds, "/v1/capsules/songs", 200).await;
    for path in ["/v1/capsules/songs", "/capsules/songs/schema"] {
        assert_eq!(
            acme.get(path).await.expect(404)["code"],
            "unknown_capsule",
            "{path}"
        );
    }
    let body = json!({"capsule": "songs", "arguments": {}});
    assert_eq!(
        acme.post("/v1/runs", &body).await.expect(404)["code"],
        "unknown_capsule"
    );
    birds.post("/v1/runs", &body).await.expect(202);
    // A token for all tenants acts for the tenant in the header.
    let acting = |tenant: &str| {
        gateway
            .request("GET", "/v1/capsules/songs")
            .header("aod-tenant", tenant)
    };
    assert_eq!(send(acting("birds")).await.status, 200);
    assert_eq!(send(acting("acme")).await.status, 404);
    assert_eq!(send(acting("No Name")).await.status, 400);
    let refused = birds
        .request("GET", "/v1/runs")
        .header("aod-tenant", "acme");
    assert_eq!(send(refused).await.expect(403)["code"], "not_permitted");
}

#[tokio::test]
async fn dead_letters_belong_to_one_tenant() {
    let (cluster, gateway, _other, node) = cluster().await;
    drop(node);
    let acme = person(&gateway, Some("acme"), "ada", Role::Operate).await;
    let birds = person(&gateway, Some("birds"), "ada", Role::Operate).await;
    let body = json!({"capsule": "echo", "arguments": {}});
    let view = acme.post("/v1/runs", &body).await.expect(202);
    let run = view["id"].as_str().unwrap();
    lose(&cluster, run.parse().unwrap()).await;
    until_status(&acme, &format!("/v1/deadletters/{run}"), 200).await;
    for (method, path) in [("GET", ""), ("POST", "/requeue"), ("POST", "/purge")] {
        let path = format!("/v1/deadletters/{run}{path}");
        let refused = send(birds.request(method, &path)).await.expect(404);
        assert_eq!(refused["code"], "unknown_dead_letter");
    }
    let requeued = acme
        .post(&format!("/v1/deadletters/{run}/requeue"), &json!(null))
        .await
        .expect(202);
    assert_eq!(requeued["tenant"], "acme");
    assert_eq!(requeued["requested_by"], "acme/ada");
    let events = gateway
        .get("/v1/events?type=requeued&tenant=acme")
        .await
        .expect(200);
    assert_eq!(events["items"][0]["data"]["requested_by"], "acme/ada");
}

#[tokio::test]
async fn tenant_creates_tokens_only_for_itself() {
    let (_cluster, one, _two, _node) = cluster().await;
    let ada = person(&one, Some("acme"), "ada", Role::Admin).await;
    let taken = json!({"name": "ada", "role": "read", "tenant": "acme"});
    assert_eq!(
        one.post("/v1/tokens", &taken).await.expect(409)["code"],
        "token_exists"
    );
    let own = json!({"name": "ci", "role": "run", "expires_days": 30});
    let ci = ada.post("/v1/tokens", &own).await.expect(201);
    assert_eq!(
        (&ci["tenant"], &ci["issued_by"]),
        (&json!("acme"), &json!("acme/ada"))
    );
    for body in [
        json!({"name": "spy", "role": "read", "tenant": "birds"}),
        json!({"name": "spy", "role": "read", "all_tenants": true}),
    ] {
        assert_eq!(
            ada.post("/v1/tokens", &body).await.expect(403)["code"],
            "not_permitted"
        );
    }
    let wrong =
        json!({"name": "A B", "role": "root", "tenant": "*", "expires_days": 0, "colour": "red"});
    let problem = one.post("/v1/tokens", &wrong).await.expect(400);
    let places: Vec<&str> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["pointer"].as_str().unwrap())
        .collect();
    assert_eq!(
        places,
        ["/name", "/role", "/tenant", "/expires_days", "/colour"]
    );
}

#[tokio::test]
async fn token_is_valid_on_all_gateways_until_revoked_or_expired() {
    let (cluster, one, two, _node) = cluster().await;
    let ada = person(&one, Some("acme"), "ada", Role::Admin).await;
    let elsewhere = Person {
        gateway: &two,
        token: ada.token.clone(),
    };
    until_status(&elsewhere, "/v1/runs", 200).await;

    let own = json!({"name": "ci", "role": "run"});
    let ci = elsewhere.post("/v1/tokens", &own).await.expect(201);
    let hidden = person(&one, Some("birds"), "bob", Role::Read).await;
    let list = one.get("/v1/tokens").await.expect(200);
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 3);
    let id_of = |name: &str| {
        items.iter().find(|item| item["name"] == name).unwrap()["id"]
            .as_str()
            .unwrap()
    };
    let foreign = format!("/v1/tokens/{}", id_of("bob"));
    let refused = send(ada.request("DELETE", &foreign)).await.expect(404);
    assert_eq!(refused["code"], "unknown_token");
    hidden.get("/v1/runs").await.expect(200);

    let path = format!("/v1/tokens/{}", id_of("ada"));
    assert_eq!(send(two.request("DELETE", &path)).await.status, 204);
    assert_eq!(
        elsewhere.get("/v1/runs").await.expect(401)["code"],
        "unauthorized"
    );
    until_status(&ada, "/v1/runs", 401).await;
    assert_eq!(
        send(two.request("DELETE", &path)).await.expect(404)["code"],
        "unknown_token"
    );

    // A gateway that starts later knows the valid tokens.
    let late = cluster.gateway("late").await;
    let ci = ci["token"].as_str().unwrap().to_owned();
    let ci = Person {
        gateway: &late,
        token: ci,
    };
    ci.get("/v1/runs").await.expect(200);
    let ada = Person {
        gateway: &late,
        token: elsewhere.token.clone(),
    };
    ada.get("/v1/runs").await.expect(401);

    // Only hashes are stored, also in the files of the broker and of the lists.
    for token in [&ada.token, &ci.token, &hidden.token] {
        assert!(!cluster.is_at_rest(token));
    }
    let (_, id) = id_of("ada").split_once('_').unwrap();
    assert!(cluster.is_at_rest(id), "the check reads the files");
}

#[tokio::test]
async fn callee_belongs_to_tenant_of_its_caller() {
    let cluster = Cluster::start().await;
    let acme: Tenant = "acme".parse().unwrap();
    cluster
        .register_for(&acme, "caller", &any_schema(), Handoffs::Open)
        .await;
    cluster
        .register_for(&acme, "callee", &any_schema(), Handoffs::Listed(vec![]))
        .await;
    // Another tenant has a capsule with the same name, which accepts no arguments.
    let never =
        json!({"input": {"type": "object", "maxProperties": 0}, "output": {"type": "object"}});
    cluster
        .register("callee", &never, Handoffs::Listed(vec![]))
        .await;
    let gateway = cluster.gateway("one").await;
    let ada = person(&gateway, Some("acme"), "ada", Role::Run).await;
    let url = gateway.url.clone();
    let _node = ScriptedNode::start(&cluster, move |taken: Taken| {
        let url = url.clone();
        async move {
            if taken.run.launched.event.work.name().as_str() == "callee" {
                return taken.echo();
            }
            let answer =
                crate::calls::call_once(&url, &taken, "callee", json!({"word": "hello"})).await;
            taken.succeed(answer)
        }
    })
    .await;
    let body = json!({"capsule": "caller", "arguments": {}});
    let request = ada
        .request("POST", "/v1/runs")
        .header("prefer", "wait=50")
        .json(&body);
    let view = send(request).await.expect(200);
    assert_eq!(view["state"], "succeeded", "{view:#}");
    let tree = ada
        .get(&format!("/v1/runs/{}/tree", view["id"].as_str().unwrap()))
        .await
        .expect(200);
    assert_eq!(tree["children"][0]["tenant"], "acme", "{tree:#}");
    let events = gateway
        .get("/v1/events?tenant=acme&type=launched")
        .await
        .expect(200);
    assert_eq!(events["items"].as_array().unwrap().len(), 2);
    let bundle = ada
        .get(&format!("/v1/runs/{}/replay", view["id"].as_str().unwrap()))
        .await
        .expect(200);
    assert_eq!(bundle["is_equal"], true, "{bundle:#}");
}
