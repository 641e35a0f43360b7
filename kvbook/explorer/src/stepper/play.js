/** A clock for the play button: calls tick() every `period` ms until it returns false or pause() is called. */
export function player(tick, onChange, period) {
  let timer = null;
  const pause = () => {
    if (timer === null) return;
    clearInterval(timer);
    timer = null;
    onChange(false);
  };
  const play = () => {
    if (timer !== null) return;
    timer = setInterval(() => tick() || pause(), period);
    onChange(true);
  };
  return { play, pause, isPlaying: () => timer !== null };
}
