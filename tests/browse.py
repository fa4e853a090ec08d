"""browse.py CHROMIUM FOLDER: opens every page of a site in a headless browser, as wide as a telephone.

Prints what is wrong: messages of the console, files that do not load, pictures that are not shown, equations without an
extent, links that lead nowhere, and pages that are wider than the window. Exit status 1 if there is any.

Speaks the browser's protocol over its pipe (--remote-debugging-pipe): a JSON object, ended by NUL, on descriptors 3 and 4.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

CHECK = """
(() => {
    const wrong = [];
    for (const i of document.images)
        if (!i.complete || i.naturalWidth === 0) wrong.push("picture is missing: " + i.src);
    for (const m of document.querySelectorAll("math"))
        if (m.getBoundingClientRect().width < 5) wrong.push("equation is not shown: " + m.textContent.slice(0, 40));
    const wide = document.documentElement.scrollWidth;
    if (wide > 360) {
        const e = [...document.body.querySelectorAll("*")].find(e => e.getBoundingClientRect().right > 361
            && ![...function* (p) { while (p = p.parentElement) yield p }(e)].some(p => getComputedStyle(p).overflowX === "auto"));
        wrong.push("is " + wide + " pixels wide: " + (e ? e.outerHTML.slice(0, 100) : ""));
    }
    return JSON.stringify({wrong, ids: [...document.querySelectorAll("[id]")].map(e => e.id),
        links: [...document.links].map(a => a.getAttribute("href")), colour: getComputedStyle(document.links[0]).color});
})()
"""


class Browser:
    def __init__(self, program, home):
        to_read, self.out = os.pipe()
        self.back, to_write = os.pipe()

        def move():
            # through free numbers: 3 and 4 may be in use
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             "--window-size=360,740", "--user-data-dir=" + home], preexec_fn=move, close_fds=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.rest, self.number, self.events, self.session = b"", 0, [], None

    def receive(self):
        while b"\0" not in self.rest:
            more = os.read(self.back, 1 << 16)
            if not more:
                sys.exit("browse.py: the browser has ended")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"browse.py: {method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait(self, method):
        while not any(e.get("method") == method for e in self.events):
            self.events.append(self.receive())


def complaint(event):
    params = event.get("params", {})
    method = event.get("method")
    if method == "Log.entryAdded":
        return params["entry"]["text"] + " " + params["entry"].get("url", "")
    if method == "Runtime.exceptionThrown":
        return params["exceptionDetails"]["text"]
    if method == "Runtime.consoleAPICalled":
        return "console: " + str(params["args"])
    if method == "Network.loadingFailed":
        return "does not load: " + params["errorText"]
    return None


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    pages, wrong = {}, []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        browser = Browser(program, home)
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in "Page", "Log", "Runtime", "Network":
            browser.call(domain + ".enable")
        browser.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
        for path in sorted(folder.glob("*.html")):
            browser.events = []
            browser.call("Page.navigate", url=path.as_uri())
            browser.wait("Page.loadEventFired")
            page = json.loads(browser.call("Runtime.evaluate", expression=CHECK)["result"]["value"])
            pages[path.name] = page
            wrong += [f"{path.name}: {w}" for w in page["wrong"] + [c for c in map(complaint, browser.events) if c]]
        browser.session = None
        browser.call("Browser.close")
        browser.process.wait()
    for name, page in pages.items():
        if page["colour"] != pages["index.html"]["colour"]:
            wrong.append(f"{name}: has another style")
        for link in page["links"]:
            file, _, anchor = link.partition("#")
            if "://" in link:
                continue
            if (file or name) not in pages:
                wrong.append(f"{name}: leads nowhere: {link}")
            elif anchor and anchor not in pages[file or name]["ids"]:
                wrong.append(f"{name}: no such place: {link}")
    if wrong:
        print("\n".join(wrong))
    print(f"{len(pages)} pages, {sum(len(p['links']) for p in pages.values())} links", file=sys.stderr)
    sys.exit(1 if wrong else 0)


main()
