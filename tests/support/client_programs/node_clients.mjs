// `node node_clients.mjs URL NAME` beside node_modules: as python_clients.py, with libraries for JavaScript.
import { deepStrictEqual as same } from 'node:assert';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
const [url, name] = process.argv.slice(2);
const v1 = `${url}/v1`, apiKey = 'none', MANY = 50, pet = `My pet is called ${name}-${Date.now()}`;
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC';
const CALL = 'CALL weather {"city": "Riga"}', CITY = 'JSON {"city": "Riga", "people": 7}', FAIL = 'FAIL 400';
const object = (properties) => ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false });
const schema = object({ city: { type: 'string' }, people: { type: 'integer' } });
const weather = { name: 'weather', description: 'Tells it', parameters: object({ city: { type: 'string' } }) };
const user = (content) => ({ role: 'user', content }), assistant = (content) => ({ role: 'assistant', content });
const has = (text, part) => { if (!String(text).includes(part)) throw Error(`${part} is not in ${text}`); };
const isCity = (found) => same({ ...found }, { city: 'Riga', people: 7 });
const joined = async (pieces, text) => { let all = ''; for await (const each of pieces) all += text(each) ?? ''; return all; };
const atOnce = async (ask) => {
  const all = [...Array(MANY).keys()].map((number) => `n${number}`);
  same(await Promise.all(all.map((each) => ask(`SAY ${each}`))), all);
};
const fails = async (act, part) => {
  let found;
  try { found = await act(); } catch (error) { return has(`${error.name} ${error.message}`, part); }
  throw Error(`it did not fail: ${JSON.stringify(found)}`);
};

async function openai() {
  const { default: OpenAI } = await import('openai');
  const client = new OpenAI({ baseURL: v1, apiKey, maxRetries: 0 });
  const create = (messages, more) => client.chat.completions.create({ model: 'klaw', messages, ...more });
  const say = async (messages, more) => (await create(typeof messages === 'string' ? [user(messages)] : messages, more)).choices[0].message;
  const tools = [{ type: 'function', function: weather }];
  return {
    chat: async () => same((await say('Hello')).content, 'echo: Hello'),
    stream: async () => same(await joined(await create([user('one two')], { stream: true }), (each) => each.choices[0]?.delta.content), 'echo: one two'),
    recalled: async () => has((await say([user(pet), assistant((await say(pet)).content), user('RECALL')])).content, pet),
    tools: async () => {
      const called = await say(CALL, { tools }), [call] = called.tool_calls;
      same([call.function.name, JSON.parse(call.function.arguments)], ['weather', { city: 'Riga' }]);
      const result = { role: 'tool', tool_call_id: call.id, content: 'SUNNY 21' };
      has((await say([user(CALL), called, result], { tools })).content, 'SUNNY 21');
    },
    structured: async () => isCity(JSON.parse((await say(CITY, { response_format: { type: 'json_schema', json_schema: { name: 'city', schema } } })).content)),
    pictures: async () => same((await say([user([{ type: 'text', text: 'IMAGES' }, { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } }])])).content, 'PICTURES: 1'),
    usage: async () => same((await create([user('Hi')])).usage.total_tokens > 0, true),
    error: () => fails(() => say(FAIL), 'status 400'),
    'at once': () => atOnce(async (text) => (await say(text)).content),
    leaves: async () => { for await (const each of await create([user(`LEAVE ${name}.`)], { stream: true })) if (each.choices[0]?.delta.content) break; },
  };
}

async function ai(model, structured) {
  const { generateText, streamText, generateObject, tool, jsonSchema, stepCountIs } = await import('ai');
  const say = (prompt, more) => generateText({ model, maxRetries: 0, ...(typeof prompt === 'string' ? { prompt } : { messages: prompt }), ...more });
  const tools = { weather: tool({ description: 'Tells it', inputSchema: jsonSchema(weather.parameters), execute: async ({ city }) => `SUNNY in ${city}` }) };
  return {
    chat: async () => same((await say('Hello')).text, 'echo: Hello'),
    stream: async () => same(await joined(streamText({ model, prompt: 'one two' }).textStream, (each) => each), 'echo: one two'),
    recalled: async () => has((await say([user(pet), ...(await say(pet)).response.messages, user('RECALL')])).text, pet),
    tools: async () => has((await say(CALL, { tools, stopWhen: stepCountIs(3) })).text, 'SUNNY in Riga'),
    structured: async () => isCity((await generateObject({ model, maxRetries: 0, prompt: CITY, schema: jsonSchema(schema) })).object),
    pictures: async () => same((await say([user([{ type: 'text', text: 'IMAGES' }, { type: 'image', image: PNG }])])).text, 'PICTURES: 1'),
    usage: async () => same((await say('Hi')).usage.totalTokens > 0, true),
    error: () => fails(() => say(FAIL), 'status 400'),
    'at once': () => atOnce(async (text) => (await say(text)).text),
    leaves: async () => {
      const leaving = new AbortController();
      for await (const each of streamText({ model, prompt: `LEAVE ${name}.`, abortSignal: leaving.signal }).textStream) if (each) leaving.abort();
    },
  };
}

async function ollama() {
  const { Ollama } = await import('ollama');
  const client = new Ollama({ host: url });
  const say = async (messages, more) => (await client.chat({ model: 'klaw', messages: typeof messages === 'string' ? [user(messages)] : messages, ...more })).message;
  const tools = [{ type: 'function', function: weather }];
  return {
    chat: async () => {
      same((await client.list()).models.map((each) => each.model), ['klaw:latest']);
      same((await say('Hello')).content, 'echo: Hello');
      same((await client.generate({ model: 'klaw', prompt: 'Hello' })).response, 'echo: Hello');
    },
    stream: async () => same(await joined(await client.chat({ model: 'klaw', messages: [user('one two')], stream: true }), (each) => each.message.content), 'echo: one two'),
    recalled: async () => has((await say([user(pet), await say(pet), user('RECALL')])).content, pet),
    tools: async () => {
      const called = await say(CALL, { tools }), [call] = called.tool_calls;
      same([call.function.name, call.function.arguments], ['weather', { city: 'Riga' }]);
      has((await say([user(CALL), called, { role: 'tool', tool_name: 'weather', content: 'SUNNY 21' }], { tools })).content, 'SUNNY 21');
    },
    structured: async () => isCity(JSON.parse((await say(CITY, { format: schema })).content)),
    pictures: async () => same((await say([{ ...user('IMAGES'), images: [PNG] }])).content, 'PICTURES: 1'),
    usage: async () => same((await client.chat({ model: 'klaw', messages: [user('Hi')] })).eval_count > 0, true),
    error: () => fails(() => say(FAIL), 'status 400'),
    'at once': () => atOnce(async (text) => (await say(text)).content),
    leaves: async () => {
      const pieces = await client.chat({ model: 'klaw', messages: [user(`LEAVE ${name}.`)], stream: true });
      try { for await (const _each of pieces) pieces.abort(); } catch (error) { same(error.name, 'AbortError'); }
    },
  };
}

async function mcp() {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`)));
  const call = async (tool, given) => JSON.parse((await client.callTool({ name: tool, arguments: given })).content[0].text);
  return {
    tools: async () => {
      const { fact } = await call('save', { text: 'Likes tulips' });
      same((await call('search', { query: 'tulips' })).results.map((each) => each.id), [fact.id]);
      same((await client.listResources()).resources.map((each) => each.uri), [`klaw://facts/${fact.id}`]);
      const read = await client.readResource({ uri: `klaw://facts/${fact.id}` });
      same(JSON.parse(read.contents[0].text).fact.text, 'Likes tulips');
      same((await client.listTools()).tools.length > 10, true);
    },
    error: async () => same((await client.callTool({ name: 'fetch', arguments: { what: 'fact:123456' } })).isError, true),
    'at once': async () => same(new Set(await Promise.all([...Array(MANY)].map(async () => (await call('list', {})).facts.length))), new Set([1])),
    leaves: () => client.close(),
  };
}

async function inspector() {
  const run = promisify(execFile), cli = 'node_modules/@modelcontextprotocol/inspector/cli/build/cli.js';
  const ask = async (...options) => JSON.parse((await run(process.execPath, [cli, '--cli', `${url}/mcp`, '--transport', 'http', ...options], { cwd: import.meta.dirname })).stdout);
  return {
    tools: async () => {
      same((await ask('--method', 'tools/list')).tools.length > 10, true);
      const saved = await ask('--method', 'tools/call', '--tool-name', 'save', '--tool-arg', 'text=Likes lilies');
      has(saved.content[0].text, 'Likes lilies');
    },
    error: async () => same((await ask('--method', 'tools/call', '--tool-name', 'fetch', '--tool-arg', 'what=fact:123456')).isError, true),
  };
}

const clients = {
  'openai-npm': openai,
  'ai-openai-compatible': async () => {
    const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
    return ai(createOpenAICompatible({ name: 'klaw', baseURL: v1, apiKey, includeUsage: true, supportsStructuredOutputs: true })('klaw'));
  },
  'ai-openai': async () => {
    const { createOpenAI } = await import('@ai-sdk/openai');
    return ai(createOpenAI({ baseURL: v1, apiKey })('klaw'));
  },
  'ollama-npm': ollama,
  'mcp-npm': mcp,
  'mcp-inspector': inspector,
};
for (const [each, act] of Object.entries(await clients[name]())) {
  let why = null;
  try { await act(); } catch (error) { why = `${error.name}: ${error.message}`.slice(0, 1000); console.error(error); }
  console.log(JSON.stringify({ case: each, why }));
}
process.exit();
