//! `aod tokens`: creates, lists and revokes access tokens.

use aod_api::tokens::{CreateToken, CreatedToken, TokenList};
use jiff::Timestamp;

use crate::arguments::{
    ConnectArguments, CreateTokenArguments, RevokeTokenArguments, TokensCommand,
};
use crate::client::{Client, encoded};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

pub(super) async fn tokens(command: TokensCommand, console: Console) -> Result<Exit, Failure> {
    match command {
        TokensCommand::Create(arguments) => create(&arguments, console).await,
        TokensCommand::Ls(connect) => list(&connect, console).await,
        TokensCommand::Revoke(arguments) => revoke(&arguments, console).await,
    }?;
    Ok(Exit::Ok)
}

async fn create(arguments: &CreateTokenArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let body = CreateToken::from(arguments);
    let created: CreatedToken = client.post("/v1/tokens", &body).await?;
    // stdout has only the token, so that a shell can redirect it to a file.
    console.tell(&text::token::sentence(&created.view));
    console.show(&created, || created.token.clone())
}

async fn list(connect: &ConnectArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(connect)?;
    let list: TokenList = client.get("/v1/tokens", &[]).await?;
    console.show(&list, || text::token::table(&list.items, Timestamp::now()))
}

async fn revoke(arguments: &RevokeTokenArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let path = format!("/v1/tokens/{}", encoded(&arguments.token));
    client.delete(&path).await?;
    console.tell(&format!("revoked {}", arguments.token));
    Ok(())
}
