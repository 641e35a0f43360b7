# Positions start at 0 again in each pass.
# score: 4  fails: test_positions
def generate_cached(model, ids, n):
    fed, past, start = ids, None, 0
    for _ in range(n):
        positions = torch.arange(0, fed.shape[1])
        logits, new = model(fed, positions, past)
        if past is not None:
            new = [
                (torch.cat([old[0], rows[0]], 2), torch.cat([old[1], rows[1]], 2))
                for old, rows in zip(past, new, strict=True)
            ]
        past, start = new, start + fed.shape[1]
        fed = logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, fed], dim=1)
    return ids
