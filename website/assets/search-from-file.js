// Browsers start no worker from a file, so the search would need a server. Where the page is a file, this runs the
// script of a worker in a frame of its own instead. It knows as much of a worker as the search uses.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inside = this.frame.contentWindow, script = inside.document.createElement("script");
      inside.postMessage = (data) => setTimeout(() => this.onmessage && this.onmessage({ data }));
      script.onload = () => {
        this.waiting.forEach((data) => inside.onmessage({ data }));
        this.waiting = null;
      };
      script.onerror = () => this.onerror && this.onerror(new Event("error"));
      script.src = new URL(url, location.href).href;
      inside.document.body.append(script);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else setTimeout(() => this.frame.contentWindow && this.frame.contentWindow.onmessage({ data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
