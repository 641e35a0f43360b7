/** A clock for the play button: tick() every `period` ms until it returns false or pause() is called. */
export function player(tick, onChange, period) {
  let timer = null;
  const pause = () => {
    if (timer === null) return;
    clearTimeout(timer);
    timer = null;
    onChange(false);
  };
  const wait = () => {
    timer = setTimeout(() => (tick() ? wait() : pause()), period);
  };
  const play = () => {
    if (timer !== null) return;
    wait();
    onChange(true);
  };
  return { play, pause, isPlaying: () => timer !== null };
}
