// Browsers start no worker from a page that was opened as a file, and the search of this site is one. On such pages a hidden
// frame of the same page takes the worker's place: it loads the worker's program, and messages are passed by hand.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = []; // messages to a frame that has not loaded its program yet
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const program = inside.document.createElement("script");
      program.src = url;
      program.onload = () => {
        this.frame = inside;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      inside.document.body.appendChild(program);
    }
    postMessage(data) {
      if (!this.frame) this.waiting.push(data);
      else this.frame.dispatchEvent(new this.frame.MessageEvent("message", { data }));
    }
    terminate() {}
  };
}
