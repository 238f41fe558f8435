"""How far those who weigh runs agree: a judge with itself, judges with each other, and judges with people."""
