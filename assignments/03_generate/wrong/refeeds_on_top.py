# The whole text is fed in each step although the past holds it already.
# score: 2  fails: test_past
def generate_cached(model, ids, n):
    past = None
    for _ in range(n):
        logits, new = model(ids, torch.arange(ids.shape[1]), past)
        if past is not None:
            new = [
                (torch.cat([old[0], rows[0]], 2), torch.cat([old[1], rows[1]], 2))
                for old, rows in zip(past, new, strict=True)
            ]
        past = new
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
    return ids
