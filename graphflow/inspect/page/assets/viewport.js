// What part of the picture is seen: zoom, pan, and the minimap.

const LEAST_SCALE = 0.02,
  MOST_SCALE = 3;
const LEAST_SEEN = 80; // pixels of the graph on each side
const FAR = 0.33; // below this scale texts are left out

class Viewport {
  /** `scene` is the group that is moved; `size` the extent of its contents. */
  constructor(svg, scene, minimap) {
    Object.assign(this, { svg, scene, minimap, x: 0, y: 0, scale: 1 });
    this.size = { width: 1, height: 1 };
    this.marks = [];
    this.listen();
  }

  listen() {
    this.svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.svg.addEventListener("pointerdown", (event) => this.drag(event));
    this.minimap.addEventListener("pointerdown", (event) => this.jump(event));
    this.minimap.addEventListener("pointermove", (event) => event.buttons && this.jump(event));
    this.minimap.addEventListener("redraw", () => this.drawMinimap());
    new ResizeObserver(() => this.show()).observe(this.svg);
  }

  wheel(event) {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey || !event.shiftKey) {
      const box = this.svg.getBoundingClientRect();
      this.zoom(
        Math.exp(-event.deltaY * 0.0015),
        event.clientX - box.left,
        event.clientY - box.top,
      );
    } else {
      this.moveBy(-event.deltaX, -event.deltaY);
    }
  }

  drag(event) {
    if (event.button !== 0) return;
    let [lastX, lastY, moved] = [event.clientX, event.clientY, 0];
    const move = (next) => {
      moved += Math.abs(next.clientX - lastX) + Math.abs(next.clientY - lastY);
      this.dragged = moved > 4;
      this.svg.classList.toggle("dragged", this.dragged);
      this.moveBy(next.clientX - lastX, next.clientY - lastY);
      [lastX, lastY] = [next.clientX, next.clientY];
    };
    const stop = () => {
      window.removeEventListener("pointermove", move);
      this.svg.classList.remove("dragged");
    };
    this.dragged = false;
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", stop, { once: true });
  }

  moveBy(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.show();
  }

  /** Zoom by a factor around a point of the window, its middle if none is given. */
  zoom(factor, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    const scale = Math.min(MOST_SCALE, Math.max(LEAST_SCALE, this.scale * factor));
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.show();
  }

  /** Show the whole graph. */
  fit() {
    const { clientWidth, clientHeight } = this.svg;
    const scale = Math.min(
      clientWidth / (this.size.width + 60),
      clientHeight / (this.size.height + 60),
    );
    this.scale = Math.min(1, Math.max(LEAST_SCALE, scale));
    this.x = (clientWidth - this.size.width * this.scale) / 2;
    this.y = (clientHeight - this.size.height * this.scale) / 2;
    this.show();
  }

  /** Show the whole graph if its texts can be read then; else leave what is seen. */
  prepareForPrint() {
    const { x, y, scale } = this;
    this.fit();
    if (this.scale >= FAR) return;
    Object.assign(this, { x, y, scale: Math.max(scale, FAR) });
    this.show();
  }

  /** Show the beginning of the graph at a scale at which it can be read. */
  begin() {
    this.fit();
    if (this.scale >= 0.55) return;
    this.scale = 0.8;
    this.x = this.svg.clientWidth / 2 - (this.top ?? this.size.width / 2) * this.scale;
    this.y = 24;
    this.show();
  }

  /** Bring a rectangle of the picture to the middle, at a scale at which it can be read. */
  center({ x, y, width, height }) {
    this.scale = Math.max(this.scale, 0.7);
    this.x = this.svg.clientWidth / 2 - (x + width / 2) * this.scale;
    this.y = this.svg.clientHeight / 2 - (y + height / 2) * this.scale;
    this.show();
  }

  /** Keep a part of the graph in view. */
  clamp() {
    const { clientWidth, clientHeight } = this.svg;
    this.x = Math.min(
      Math.max(this.x, LEAST_SEEN - this.size.width * this.scale),
      clientWidth - LEAST_SEEN,
    );
    this.y = Math.min(
      Math.max(this.y, LEAST_SEEN - this.size.height * this.scale),
      clientHeight - LEAST_SEEN,
    );
  }

  show() {
    this.clamp();
    this.scene.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
    this.svg.classList.toggle("far", this.scale < FAR);
    if (!this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => {
        this.waiting = false;
        this.drawMinimap();
      });
    }
  }

  /** The scale of the minimap, and where the graph begins in it. */
  minimapScale() {
    const { width, height } = this.minimap;
    const scale = Math.min((width - 10) / this.size.width, (height - 10) / this.size.height);
    return {
      scale,
      left: (width - this.size.width * scale) / 2,
      top: (height - this.size.height * scale) / 2,
    };
  }

  drawMinimap() {
    const pen = this.minimap.getContext("2d");
    const { scale, left, top } = this.minimapScale();
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    pen.clearRect(0, 0, this.minimap.width, this.minimap.height);
    for (const { x, y, width, height, red, dim } of this.marks) {
      pen.fillStyle = color(red ? "--red" : dim ? "--line" : "--muted");
      pen.fillRect(
        left + x * scale,
        top + y * scale,
        Math.max(2, width * scale),
        Math.max(red ? 2 : 1, height * scale),
      );
    }
    pen.strokeStyle = color("--accent");
    pen.lineWidth = 1.5;
    const seen = (at, extent, start, most) => {
      const first = Math.max(1, start - (at / this.scale) * scale);
      const last = Math.min(most - 1, start + ((extent - at) / this.scale) * scale);
      return [first, last - first];
    };
    const [x, width] = seen(this.x, this.svg.clientWidth, left, this.minimap.width);
    const [y, height] = seen(this.y, this.svg.clientHeight, top, this.minimap.height);
    pen.strokeRect(x, y, width, height);
  }

  jump(event) {
    const { scale, left, top } = this.minimapScale();
    const finer = this.minimap.width / this.minimap.clientWidth;
    const [x, y] = [event.offsetX * finer - left, event.offsetY * finer - top];
    this.x = this.svg.clientWidth / 2 - (x / scale) * this.scale;
    this.y = this.svg.clientHeight / 2 - (y / scale) * this.scale;
    this.show();
  }
}
